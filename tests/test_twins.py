"""The fast code against loops written from the papers: logits, weights and gradients, in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import bahdanau, luong
from zoo import pad_batch, random_batch, teacher_forced, tiny_model, variant_name, variants

TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}


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


def luong_parameters(model) -> dict:
    decoder = model.decoder.network
    if hasattr(decoder, "cells"):
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        decoder_cells = [{name: getattr(cell, name) for name in names} for cell in decoder.cells]
    else:
        decoder_cells = [layer["forward"] for layer in cells(decoder.rnn)]
    parameters = {
        "encoder": cells(model.encoder.network.rnn),
        "decoder": decoder_cells,
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


def twin(name: str, model, flags: dict):
    """The naive twin of an architecture: a function of one sentence's source and target embeddings."""
    if name == "gru_rnnsearch":
        return lambda x, y: bahdanau.rnnsearch(bahdanau_parameters(model), x, y)
    if name == "gru_rnnencdec":
        return lambda x, y: bahdanau.rnnencdec(bahdanau_parameters(model), x, y)
    if name == "lstm_luong_attention":
        return lambda x, y: luong.global_attention(
            luong_parameters(model), x, y, flags["attention_score"], not flags["decoder_no_input_feeding"]
        )
    raise LookupError(f"{name} has no naive twin: write one in tests/naive and name it here")


@pytest.mark.parametrize("variant", variants(), ids=variant_name)
@settings(max_examples=6, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 6), st.integers(2, 5)), min_size=1, max_size=3),
    layers=st.integers(1, 2),
    seed=st.integers(0, 1000),
)
def test_equals_the_papers_loops(variant, lengths, layers, seed):
    name, flags = variant
    model = tiny_model(name, seed, encoder_layers=layers, decoder_layers=layers, **flags)
    sources = random_batch([source for source, _ in lengths], seed)
    targets = random_batch([target for _, target in lengths], seed + 1)
    given_targets = teacher_forced(targets)
    logits, extra = model(pad_batch(sources, left=True), None, pad_batch(given_targets))
    weights = extra["attn"][0]

    naive = twin(name, model, flags)
    width = max(map(len, sources))
    fast_logits, naive_logits = [], []
    for row, (source, target) in enumerate(zip(sources, given_targets, strict=True)):
        expected, expected_weights = naive(
            model.encoder.embed_tokens(torch.tensor(source)), model.decoder.embed_tokens(torch.tensor(target))
        )
        naive_logits.append(expected)
        fast_logits.append(logits[row, : len(target)])
        torch.testing.assert_close(fast_logits[-1], expected, **TOLERANCE)
        if expected_weights is not None:
            torch.testing.assert_close(
                weights[row, : len(target), width - len(source) :], expected_weights, **TOLERANCE
            )

    coefficients = [torch.randn_like(rows) for rows in naive_logits]
    parameters = dict(model.named_parameters())
    fast, slow = (
        torch.autograd.grad(
            sum((rows * weight).sum() for rows, weight in zip(batch, coefficients, strict=True)),
            list(parameters.values()),
            allow_unused=True,
        )
        for batch in (fast_logits, naive_logits)
    )
    for parameter, got, expected in zip(parameters, fast, slow, strict=True):
        expected = torch.zeros_like(parameters[parameter]) if expected is None else expected
        torch.testing.assert_close(got, expected, **TOLERANCE, msg=lambda text, name=parameter: f"{name}: {text}")
