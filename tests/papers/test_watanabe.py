"""Watanabe, Tamura and Ninomiya (2017): CKY attention and its baseline."""

import pytest
import torch
from naive import watanabe
from twins import Expected, cells, embedded, lstm_cells
from zoo import tiny_model, untouched

from papers import Facts


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


def baseline(model, flags: dict, source: list[int], target: list[int]) -> Expected:
    logits, weights = watanabe.baseline(watanabe_parameters(model), *embedded(model, source, target))
    return Expected(logits, weights, {"source": weights})


def cky_attention(model, flags: dict, source: list[int], target: list[int]) -> Expected:
    x, y = embedded(model, source, target)
    logits, words, joint, chart, _ = watanabe.cky_attention(
        watanabe_parameters(model), x, y, relu_after_sum=flags["attention_relu_after_sum"]
    )
    length = len(source)
    by_start = torch.zeros(len(target), length, length, dtype=x.dtype)  # T x start x length - 1
    for word, cell_weights in enumerate(chart):
        for (size, start), weight in cell_weights.items():
            by_start[word, start - 1, size - 1] = weight
    return Expected(logits, words, {"source": words, "source_joint": joint, "source_chart": by_start})


SIZES = {
    "encoder_embed_dim": 256,
    "encoder_hidden_size": 256,
    "decoder_embed_dim": 256,
    "decoder_hidden_size": 256,
}
FACTS = {
    "lstm_cky_baseline": Facts(
        baseline,
        SIZES,
        layers=2,
        refused=[
            (
                {"encoder_hidden_size": 6},
                r"--encoder-hidden-size \(6, one direction\) must be equal to --decoder-hidden-size \(8\)",
            )
        ],
    ),
    "lstm_cky_attention": Facts(
        cky_attention,
        {**SIZES, "attention_relu_after_sum": False},
        layers=2,
        own_flags=frozenset({"attention_cnn_dropout", "attention_relu_after_sum"}),
        refused=[
            (
                {"encoder_hidden_size": 7, "decoder_hidden_size": 7},
                r"--encoder-hidden-size is 7, which is odd.*deduction unit halves its states",
            ),
            ({"attention_cnn_dropout": 1.0}, r"--attention-cnn-dropout is 1.0"),
        ],
        # At the others' learning rate its cells outgrow everything else (README, "Use"), and 16 units are too few. Even so
        # only some seeds have left the frequencies of words behind after so few updates.
        to_learn_sizes=dict.fromkeys(
            ("encoder_embed_dim", "decoder_embed_dim", "encoder_hidden_size", "decoder_hidden_size"), 64
        ),
        to_learn_flags=["--lr", "0.005", "--seed", "5"],
    ),
}


@pytest.mark.parametrize("cnn, expected", [(None, 0.2), (0.3, 0.3)])
def test_the_charts_dropout_is_apart_from_the_lstms(cnn, expected):
    model = tiny_model("lstm_cky_attention", dropout=0.2, attention_cnn_dropout=cnn)
    assert model.decoder.network.attention.units.dropout == expected
    assert model.encoder.network.dropout.p == model.encoder.network.dropout_between.p == 0.2
    assert model.decoder.network.dropout.p == 0.2


def test_the_deduction_units_start_by_their_inputs_and_the_rest_uniform_in_a_tenth():
    model = untouched("lstm_cky_attention", encoder_hidden_size=64, decoder_hidden_size=64)
    bounds = {"cnn1": 64**-0.5, "cnn2": 32**-0.5, "cnn3": 32**-0.5, "cnn4": 64**-0.5}
    for name, parameter in model.named_parameters():
        bound = next((bounds[unit] for unit in bounds if f".{unit}" in name), 0.1)
        assert parameter.abs().max() <= bound, name
        if parameter.numel() > 1000:
            assert 0.9 * bound * 3**-0.5 < parameter.std() < 1.1 * bound * 3**-0.5, name
