"""Choi, Cho and Bengio (2018): fine-grained attention."""

import pytest
import torch
from naive import choi
from twins import Expected, cells, embedded, lstm_cells
from zoo import batch, dictionary, tiny_model

from papers import Facts


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


def fine_grained(model, flags: dict, source: list[int], target: list[int]) -> Expected:
    variant = flags["attention_variant"]
    words = embedded(model, source, target)
    logits, weights = choi.fine_grained(choi_parameters(model, variant), *words, variant)
    if variant == "att-y-2d":
        return Expected(logits, weights.mean(-1), {"source_dimensions": weights})
    return Expected(logits, weights, {"source": weights})


FACTS = {
    "lstm_fine_grained": Facts(
        fine_grained,
        {
            "encoder_embed_dim": 620,
            "encoder_hidden_size": 1000,
            "decoder_embed_dim": 620,
            "decoder_hidden_size": 1000,
            "attention_dim": 1000,
            "attention_variant": "att-y-2d",
        },
        own_flags=frozenset({"attention_dim", "attention_variant", "attention_keep_mib"}),
        refused=[({"attention_keep_mib": -1}, r"--attention-keep-mib is -1; it must be at least 0")],
    )
}


@pytest.mark.parametrize("variant", ["att", "att-y", "att-y-2d"])
def test_recomputing_attention_changes_no_gradient_and_keeps_far_less(variant):
    inputs = batch(sources=(20, 15), targets=(20, 12))
    kept, recomputed = (
        tiny_model("lstm_fine_grained", attention_variant=variant, attention_keep_mib=mib, attention_dim=64).train()
        for mib in (1024, 0)
    )
    kept_gradients, kept_bytes = gradients_and_saved_bytes(kept, inputs)
    gradients_again, bytes_again = gradients_and_saved_bytes(recomputed, inputs)
    torch.testing.assert_close(gradients_again, kept_gradients, rtol=1e-12, atol=1e-12)
    largest = 2 * 20 * 20 * 64 * 8  # the hidden layer of every pair of words, in float64
    assert kept_bytes - bytes_again > 0.9 * largest


def gradients_and_saved_bytes(model, inputs):
    """The gradients, and the bytes that the forward pass kept for the backward pass."""
    saved = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logits, _ = model(*inputs)
        total = sum(saved.values())
    (logits * torch.linspace(-1, 1, logits.numel()).view_as(logits)).sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}, total


def test_every_dimension_has_its_own_distribution_over_the_source():
    model = tiny_model("lstm_fine_grained", attention_variant="att-y-2d")
    inputs = batch(sources=(5, 2), targets=(4, 4))
    _, extra = model(*inputs, need_trace=True)
    weights = extra["trace"]["source_dimensions"].values
    assert weights.shape == (2, 4, 5, model.encoder.network.output_size)
    torch.testing.assert_close(weights.sum(2), torch.ones(2, 4, weights.size(3)).double())
    assert (weights.movedim(2, 1)[inputs[0] == dictionary().pad()] == 0).all()
    assert weights[0, 0].std(dim=1).min() > 1e-3  # not one score for all dimensions
    torch.testing.assert_close(weights.mean(3), extra["attn"][0])
