"""The parameters of our models as the naive twins take them, and what a twin makes of a sentence."""

from typing import NamedTuple

import torch
from naive import bahdanau, choi, luong, mino, simon, tu, watanabe


def cells(rnn: torch.nn.RNNBase) -> list[dict]:
    """PyTorch's flat parameters as the twins' list of layers."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    directions = {"forward": "", "backward": "_reverse"} if rnn.bidirectional else {"forward": ""}
    return [
        {
            direction: {name: getattr(rnn, f"{name}_l{layer}{suffix}") for name in names}
            for direction, suffix in directions.items()
        }
        for layer in range(rnn.num_layers)
    ]


def bahdanau_parameters(model) -> dict:
    decoder = model.decoder.network
    layers = []
    for number, cell in enumerate(decoder.cells):
        layer = {"W_s": decoder.initial_state.projections[number].weight}
        layer["W_r"], layer["W_z"], layer["W_c"] = cell.input_projection.weight.chunk(3)
        layer["U_r"], layer["U_z"] = cell.gate_recurrence.weight.chunk(2)
        layer["U_c"] = cell.candidate_recurrence.weight
        if number == 0:
            layer["C_r"], layer["C_z"], layer["C_c"] = cell.context_projection.weight.chunk(3)
        layers.append(layer)
    parameters = {
        "encoder": cells(model.encoder.network.rnn),
        "layers": layers,
        "U_o": decoder.readout.hidden_projection.weight,
        "V_o": decoder.readout.embed_projection.weight,
        "C_o": decoder.readout.context_projection.weight,
        "W_o": model.decoder.output_projection.weight,
    }
    if hasattr(decoder, "attention"):
        parameters["W"] = decoder.attention.query_projection.weight
        parameters["V"] = decoder.attention.source_projection.weight
        parameters["v"] = decoder.attention.energy
    return parameters


def tu_parameters(model) -> dict:
    attention = model.decoder.network.attention
    return {
        **bahdanau_parameters(model),
        "V_a": attention.coverage_projection.weight,
        "U_f": attention.fertility_projection.weight,
    }


def lstm_cells(decoder) -> list[dict]:
    """A decoder's LSTM as the twins' list of cells, whether it is looped over or called once."""
    if hasattr(decoder, "rnn"):
        return [layer["forward"] for layer in cells(decoder.rnn)]
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return [{name: getattr(cell, name) for name in names} for cell in decoder.cells]


def luong_parameters(model) -> dict:
    decoder = model.decoder.network
    parameters = {
        "encoder": cells(model.encoder.network.rnn),
        "decoder": lstm_cells(decoder),
        "W_c": decoder.attentional.projection.weight,
        "W": model.decoder.output_projection.weight,
    }
    attention = decoder.attention
    if hasattr(attention, "energy"):
        parameters["v_a"] = attention.energy
        parameters["W_a"] = torch.cat([attention.query_projection.weight, attention.source_projection.weight], dim=1)
    elif hasattr(attention, "source_projection"):
        parameters["W_a"] = attention.source_projection.weight
    return parameters


def mino_parameters(model) -> dict:
    encoder, decoder = model.encoder.network, model.decoder.network
    attention = decoder.attention
    parameters = {
        "forward": [cells(layer)[0]["forward"] for layer in encoder.forward_stack],
        "backward": [cells(layer)[0]["forward"] for layer in encoder.backward_stack],
        "decoder": lstm_cells(decoder),
        "W_0": [projection.weight for projection in decoder.initial_state.projections],
        "W_d": decoder.readout.weight,
        "W_o": model.decoder.output_projection.weight,
        "b_o": model.decoder.output_projection.bias,
    }
    if hasattr(attention, "merging"):
        parameters["W_e"] = attention.merging.weight
    else:
        parameters["W_f"], parameters["W_g"] = attention.key_merging.weight, attention.value_merging.weight
        if attention.query_projection is not None:
            parameters["W_q"] = attention.query_projection.weight
    return parameters


def simon_parameters(model) -> dict:
    decoder = model.decoder.network
    parameters = {
        "encoder": cells(model.encoder.network.rnn),
        "W": model.decoder.output_projection.weight,
        "b": model.decoder.output_projection.bias,
    }
    if decoder.attention.target_hops:
        parameters["key_words"] = decoder.attention.key_words.weight
        parameters["value_words"] = decoder.attention.value_words.weight
        parameters["key_times"] = decoder.attention.key_times
        parameters["value_times"] = decoder.attention.value_times
    if hasattr(decoder, "query"):
        parameters["query"] = decoder.query
    else:
        parameters["decoder"] = lstm_cells(decoder)
    return parameters


def choi_parameters(model, variant: str) -> dict:
    decoder = model.decoder.network
    attention = decoder.attention
    parameters = {
        "encoder": cells(model.encoder.network.rnn),
        "decoder": lstm_cells(decoder),
        "W_s": [projection.weight for projection in decoder.initial_state.projections],
        "W": attention.query_projection.weight,
        "U": attention.source_projection.weight,
        "b": attention.source_projection.bias,
        ("V" if variant == "att-y-2d" else "v"): attention.energy,
        "W_o": model.decoder.output_projection.weight,
        "c": model.decoder.output_projection.bias,
    }
    if variant != "att":
        parameters["Y"] = attention.word_projection.weight
    return parameters


def watanabe_parameters(model) -> dict:
    encoder, decoder = model.encoder.network, model.decoder.network
    parameters = {
        "forward": [cells(layer)[0]["forward"] for layer in encoder.forward_stack],
        "backward": [cells(layer)[0]["forward"] for layer in encoder.backward_stack],
        "decoder": lstm_cells(decoder),
        "W_s": model.decoder.output_projection.weight,
    }
    if not hasattr(decoder.attention, "units"):
        return {**parameters, "W_c": decoder.attentional.projection.weight}
    return {
        **parameters,
        "W_hat": decoder.attentional.projection.weight,
        **deduction_unit_parameters(decoder.attention.units),
    }


def deduction_unit_parameters(units) -> dict:
    cnn1, cnn3 = units.cnn1, units.cnn3
    return {
        "cnn1": {"weight": cnn1.weight, "bias": cnn1.bias},
        "cnn2": {"left": units.cnn2_left.weight, "right": units.cnn2_right.weight, "bias": units.cnn2_left.bias},
        "cnn3": {"weight": cnn3.weight, "bias": cnn3.bias},
        "cnn4": {"left": units.cnn4_left.weight, "right": units.cnn4_right.weight, "bias": units.cnn4_left.bias},
    }


class Expected(NamedTuple):
    """What a twin says of one sentence."""

    logits: torch.Tensor  # T x words
    alignment: torch.Tensor | None  # T x S
    trace: dict[str, torch.Tensor]  # the mechanism's own weights by name, T x positions x ...


def twin(name: str, model, flags: dict, source: list[int], target: list[int]) -> Expected:
    """What the naive twin of an architecture makes of one sentence."""
    x = model.encoder.embed_tokens(torch.tensor(source))
    y = None if model.decoder.embed_tokens is None else model.decoder.embed_tokens(torch.tensor(target))
    if name == "gru_rnnencdec":
        logits, _ = bahdanau.rnnencdec(bahdanau_parameters(model), x, y)
        return Expected(logits, None, {})
    if name == "lstm_memnet_hops":
        network = model.decoder.network
        hops = {"source_hops": network.attention.source_hops, "target_hops": network.attention.target_hops}
        if flags["no_decoder_lstm"]:
            logits, on_source, on_target = simon.without_lstm(simon_parameters(model), x, target, **hops)
        else:
            logits, on_source, on_target = simon.memory_network(simon_parameters(model), x, y, target, **hops)
        trace = {"source_hops": on_source.transpose(1, 2)}  # T x S x hops
        if hops["target_hops"]:
            width = len(target)
            rows = [torch.nn.functional.pad(weights, (0, width - weights.size(1))).t() for weights in on_target]
            trace["target_hops"] = torch.stack(rows)  # T x words x hops
        return Expected(logits, on_source[:, -1], trace)
    if name == "lstm_cky_attention":
        logits, words, joint, chart, _ = watanabe.cky_attention(
            watanabe_parameters(model), x, y, relu_after_sum=flags["attention_relu_after_sum"]
        )
        length = len(source)
        by_start = torch.zeros(len(target), length, length, dtype=x.dtype)  # T x start x length - 1
        for word, cell_weights in enumerate(chart):
            for (size, start), weight in cell_weights.items():
                by_start[word, start - 1, size - 1] = weight
        return Expected(logits, words, {"source": words, "source_joint": joint, "source_chart": by_start})
    if name == "lstm_fine_grained":
        variant = flags["attention_variant"]
        logits, weights = choi.fine_grained(choi_parameters(model, variant), x, y, variant)
        if variant == "att-y-2d":
            return Expected(logits, weights.mean(-1), {"source_dimensions": weights})
        return Expected(logits, weights, {"source": weights})
    if name == "gru_coverage":
        largest = model.decoder.network.attention.max_fertility
        logits, weights, coverage = tu.coverage(tu_parameters(model), x, y, largest)
        return Expected(logits, weights, {"source": weights, "source_coverage": coverage})
    if name == "gru_rnnsearch":
        logits, weights = bahdanau.rnnsearch(bahdanau_parameters(model), x, y)
    elif name == "lstm_luong_attention":
        logits, weights = luong.global_attention(
            luong_parameters(model), x, y, flags["attention_score"], not flags["decoder_no_input_feeding"]
        )
    elif name == "lstm_cky_baseline":
        logits, weights = watanabe.baseline(watanabe_parameters(model), x, y)
    elif name.startswith("lstm_kv_"):
        key_query = flags.get("attention_key_query", "upper-half")
        system = name.removeprefix("lstm_kv_")
        logits, weights = mino.key_value(mino_parameters(model), x, y, system, flags["attention_query"], key_query)
    else:
        raise LookupError(f"{name} has no naive twin: write one in tests/naive and name it here")
    return Expected(logits, weights, {"source": weights})
