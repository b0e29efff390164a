"""Mino et al. (2017): key-value attention and its siblings."""

from functools import partial

import pytest
import torch
from naive import mino
from twins import Expected, cells, embedded, lstm_cells
from zoo import Recorder, batch, gradients, tiny_model, untouched

from papers import Facts


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


def key_value(system: str, model, flags: dict, source: list[int], target: list[int]) -> Expected:
    key_query = flags.get("attention_key_query", "upper-half")
    words = embedded(model, source, target)
    logits, weights = mino.key_value(mino_parameters(model), *words, system, flags["attention_query"], key_query)
    return Expected(logits, weights, {"source": weights})


SIZES = {
    "encoder_embed_dim": 540,
    "encoder_hidden_size": 540,
    "decoder_embed_dim": 540,
    "decoder_hidden_size": 540,
    "attention_query": "previous",
}
ODD_DECODER = (
    {"decoder_hidden_size": 7},
    r"--decoder-hidden-size is 7, which is odd.*decoder state is cut into two halves",
)
ODD_ENCODER = (
    {"encoder_hidden_size": 5},
    r"--encoder-hidden-size is 5, which is odd.*encoder direction is cut into two halves",
)
FACTS = {
    "lstm_kv_baseline": Facts(
        partial(key_value, "baseline"),
        SIZES,
        layers=2,
        own_flags=frozenset({"attention_query"}),
        without_loop=[{}],
    ),
    "lstm_kv_attention": Facts(
        partial(key_value, "attention"),
        {**SIZES, "attention_key_query": "upper-half"},
        layers=2,
        own_flags=frozenset({"attention_query", "attention_key_query"}),
        refused=[ODD_DECODER, ODD_ENCODER],
        without_loop=[{}, {"attention_query": "current", "attention_key_query": "projected"}],
        to_learn_flags=["--seed", "2"],  # with seed 1 the first epoch has the best BLEU, by luck
    ),
    "lstm_kv_modified_init": Facts(
        partial(key_value, "modified_init"),
        SIZES,
        layers=2,
        own_flags=frozenset({"attention_query"}),
        refused=[ODD_DECODER],
        without_loop=[{}],
    ),
}


def test_the_modified_initialisation_zeroes_what_reads_the_contexts_upper_half_and_nothing_else():
    model = untouched("lstm_kv_modified_init")
    weight = model.decoder.network.readout.weight  # W_d, K x 2K
    size = weight.size(0)
    zero = weight == 0
    assert zero[:, size : size + size // 2].all()
    assert not zero[:, :size].any()
    assert not zero[:, size + size // 2 :].any()
    assert not (untouched("lstm_kv_baseline").decoder.network.readout.weight == 0).any()


def test_the_zero_block_trains_away_from_zero():
    model = untouched("lstm_kv_modified_init").train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients(model, batch())
    optimizer.step()
    size = model.decoder.network.readout.weight.size(0)
    assert (model.decoder.network.readout.weight[:, size : size + size // 2] != 0).all()


@pytest.mark.parametrize("name", FACTS)
def test_minos_weights_start_from_the_papers_normal_distribution(name):
    model = untouched(name, encoder_hidden_size=64, decoder_hidden_size=64)
    for parameter_name, parameter in model.named_parameters():
        if "bias" in parameter_name:
            assert (parameter == 0).all(), parameter_name
        elif parameter.numel() > 4000 and not (name.endswith("init") and "readout" in parameter_name):
            assert 0.045 < parameter.std().item() < 0.055, parameter_name


def test_minos_dropout_falls_on_the_top_layers_outputs_only():
    """One dropped output serves query and readout; neither d_0 nor the recurrence nor the layer below is dropped."""
    model = tiny_model("lstm_kv_attention", encoder_layers=2, decoder_layers=2, dropout=0.5)
    encoder, decoder = model.encoder.network, model.decoder.network
    assert encoder.dropout_between.p == 0 and decoder.rnn.dropout == 0
    encoder.dropout, decoder.dropout = Recorder(), Recorder()
    queries, features = [], []
    decoder.attention.register_forward_hook(lambda module, arguments, output: queries.append(arguments[0]))
    decoder.readout.register_forward_hook(lambda module, arguments, output: features.append(arguments[0]))
    inputs = batch()
    model(*inputs)
    assert [tensor.size(-1) for tensor in encoder.dropout.seen] == [encoder.output_size]
    (states,) = decoder.dropout.seen  # of the top layer, N x T x K
    torch.testing.assert_close(queries[0][:, 1:], 2 * states[:, :-1])
    torch.testing.assert_close(features[0][..., : states.size(-1)], 2 * states)
    first = model.encoder(inputs[0])["sentences"].state.layers[-1][0]  # d_0
    torch.testing.assert_close(queries[0][:, 0], first)
