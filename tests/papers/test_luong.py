"""Luong, Pham and Manning (2015): global attention."""

import pytest
import torch
from naive import luong
from twins import Expected, cells, embedded, lstm_cells
from zoo import tiny_model, untouched

from papers import Facts


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


def global_attention(model, flags: dict, source: list[int], target: list[int]) -> Expected:
    logits, weights = luong.global_attention(
        luong_parameters(model),
        *embedded(model, source, target),
        flags["attention_score"],
        not flags["decoder_no_input_feeding"],
    )
    return Expected(logits, weights, {"source": weights})


FACTS = {
    "lstm_luong_attention": Facts(
        global_attention,
        {
            "encoder_embed_dim": 512,
            "encoder_hidden_size": 256,
            "decoder_hidden_size": 512,
            "attention_score": "dot",
            "decoder_no_input_feeding": False,
        },
        own_flags=frozenset({"attention_score", "attention_dim", "decoder_no_input_feeding"}),
        without_loop=[{"decoder_no_input_feeding": True}],
    )
}


@pytest.mark.parametrize("score", ["dot", "general", "concat"])
def test_luongs_encoder_must_be_as_wide_as_the_decoder(score):
    with pytest.raises(ValueError, match=r"--encoder-hidden-size \(5.*--decoder-hidden-size \(8\)"):
        tiny_model("lstm_luong_attention", encoder_hidden_size=5, attention_score=score)


@pytest.mark.parametrize("score", ["dot", "general", "concat"])
@pytest.mark.parametrize("no_input_feeding", [False, True])
def test_all_parameters_start_uniform_in_a_tenth(score, no_input_feeding):
    sizes = {"encoder_hidden_size": 32, "decoder_hidden_size": 64, "attention_dim": 48}
    model = untouched("lstm_luong_attention", attention_score=score, decoder_no_input_feeding=no_input_feeding, **sizes)
    for name, parameter in model.named_parameters():
        assert parameter.abs().max() <= 0.1, name
        if parameter.numel() > 1000:
            assert 0.09 * 3**-0.5 < parameter.std() < 0.11 * 3**-0.5, name
