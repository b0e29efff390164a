"""Bahdanau, Cho and Bengio (2015): RNNsearch and RNNencdec."""

import pytest
import torch
from naive import bahdanau
from twins import Expected, cells, embedded
from zoo import Recorder, batch, tiny_model, untouched

from fairseq_attn_zoo.attention.additive import additive_score
from papers import Facts

RNNSEARCH_SIZES = {
    "encoder_embed_dim": 620,
    "decoder_embed_dim": 620,
    "encoder_hidden_size": 1000,
    "decoder_hidden_size": 1000,
    "decoder_maxout_size": 500,
    "attention_dim": 1000,
}


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


def rnnencdec(model, flags: dict, source: list[int], target: list[int]) -> Expected:
    logits, _ = bahdanau.rnnencdec(bahdanau_parameters(model), *embedded(model, source, target))
    return Expected(logits, None, {})


def rnnsearch(model, flags: dict, source: list[int], target: list[int]) -> Expected:
    logits, weights = bahdanau.rnnsearch(bahdanau_parameters(model), *embedded(model, source, target))
    return Expected(logits, weights, {"source": weights})


FACTS = {
    "gru_rnnencdec": Facts(
        rnnencdec,
        {size: units for size, units in RNNSEARCH_SIZES.items() if size != "attention_dim"},
        own_flags=frozenset({"decoder_maxout_size"}),
    ),
    "gru_rnnsearch": Facts(rnnsearch, RNNSEARCH_SIZES, own_flags=frozenset({"decoder_maxout_size", "attention_dim"})),
}


@pytest.mark.parametrize("name", FACTS)
def test_the_appendixs_initial_values(name):
    """Recurrent matrices orthogonal, one per gate; W_a and U_a from N(0, 0.001^2), v_a zero; the rest from N(0, 0.01^2)."""
    model = untouched(name, encoder_hidden_size=40, decoder_hidden_size=40, encoder_embed_dim=30)
    for parameter_name, parameter in model.named_parameters():
        if "weight_hh" in parameter_name or "recurrence" in parameter_name:
            for block in parameter.split(40):
                torch.testing.assert_close(block @ block.t(), torch.eye(40).double(), rtol=0, atol=1e-5)
        elif "bias" in parameter_name or "energy" in parameter_name:
            assert (parameter == 0).all(), parameter_name
        elif parameter.numel() > 400:
            expected = 0.001 if "attention" in parameter_name else 0.01
            assert 0.85 * expected < parameter.std().item() < 1.15 * expected, parameter_name


@pytest.mark.parametrize("name", ["gru_rnnsearch", "gru_rnnencdec"])
def test_rnnsearchs_dropout_falls_on_the_state_that_is_read_out_and_on_the_features_not_on_the_recurrence(name):
    model = tiny_model(name, dropout=0.5)
    decoder = model.decoder.network
    decoder.dropout = Recorder()
    read, features = [], []
    decoder.readout.register_forward_hook(lambda module, arguments, output: read.append(arguments[0]))
    decoder.readout.register_forward_hook(lambda module, arguments, output: features.append(output))
    inputs = batch()
    model(*inputs)
    states, last = decoder.dropout.seen
    torch.testing.assert_close(read[0], 2 * states)
    torch.testing.assert_close(features[0], last)
    decoder.dropout = torch.nn.Identity()
    read.clear()
    model(*inputs)
    torch.testing.assert_close(read[0], states)


@pytest.mark.parametrize(
    "dtype, tolerance", [(torch.float32, 0.002), (torch.bfloat16, 0.02), (torch.float16, 0.002)], ids=str
)
def test_additive_scores_of_small_states_keep_their_digits(dtype, tolerance):
    """The paper's initial weights make tanh's argument a thousandth: there it must not be noise, in any precision."""
    torch.manual_seed(1)
    query, keys, energy = (
        torch.randn(shape) * scale for shape, scale in (((2, 3, 64), 1e-3), ((2, 5, 64), 1e-3), (64, 1))
    )
    exact = (
        torch.tanh(query.to(dtype).double().unsqueeze(2) + keys.to(dtype).double().unsqueeze(1))
        @ energy.to(dtype).double()
    )
    found = additive_score(query.to(dtype), keys.to(dtype), energy.to(dtype)).double()
    assert (found - exact).norm() < tolerance * exact.norm()
