"""The fast code against loops written from the papers: logits, weights and gradients, in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from twins import twin
from zoo import pad_batch, random_batch, teacher_forced, tiny_model, variant_name, variants

TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}


def assert_equals_the_twin(name: str, model, flags: dict, sources: list[list[int]], targets: list[list[int]]) -> None:
    """Logits, every weight, and the gradient of every parameter, for a left-padded batch."""
    given_targets = teacher_forced(targets)
    batch = (pad_batch(sources, left=True), None, pad_batch(given_targets))
    logits, extra = model(*batch, need_trace=True)
    width = max(map(len, sources))
    fast_logits, naive_logits = [], []
    for row, (source, target) in enumerate(zip(sources, given_targets, strict=True)):
        expected = twin(name, model, flags, source, target)
        naive_logits.append(expected.logits)
        fast_logits.append(logits[row, : len(target)])
        torch.testing.assert_close(fast_logits[-1], expected.logits, **TOLERANCE)
        words, positions = slice(len(target)), slice(width - len(source), width)
        if expected.alignment is not None:
            torch.testing.assert_close(extra["attn"][0][row, words, positions], expected.alignment, **TOLERANCE)
        assert extra["trace"].keys() == expected.trace.keys()
        for part, weights in expected.trace.items():
            got = extra["trace"][part][row, words, positions if part.startswith("source") else words]
            if part == "source_chart":
                assert (got[..., len(source) :] == 0).all()  # spans longer than the sentence
                got = got[..., : len(source)]
            torch.testing.assert_close(got, weights, **TOLERANCE)

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


sentence_lengths = st.lists(st.tuples(st.integers(1, 6), st.integers(2, 5)), min_size=1, max_size=3)


@pytest.mark.parametrize("variant", variants(), ids=variant_name)
@settings(max_examples=6, deadline=None)
@given(lengths=sentence_lengths, layers=st.integers(1, 2), seed=st.integers(0, 1000))
def test_equals_the_papers_loops(variant, lengths, layers, seed):
    name, flags = variant
    model = tiny_model(name, seed, encoder_layers=layers, decoder_layers=layers, **flags)
    sources = random_batch([source for source, _ in lengths], seed)
    targets = random_batch([target for _, target in lengths], seed + 1)
    assert_equals_the_twin(name, model, flags, sources, targets)


@settings(max_examples=25, deadline=None)
@given(
    lengths=sentence_lengths,
    source_hops=st.integers(1, 7),
    target_hops=st.integers(0, 5),
    without_lstm=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_number_of_hops_equals_the_papers_loops(lengths, source_hops, target_hops, without_lstm, seed):
    flags = {"no_decoder_lstm": without_lstm}
    hops = {"source_hops": source_hops, "target_hops": max(target_hops, int(without_lstm))}
    model = tiny_model("lstm_memnet_hops", seed, **hops, **flags)
    sources = random_batch([source for source, _ in lengths], seed)
    targets = random_batch([target for _, target in lengths], seed + 1)
    assert_equals_the_twin("lstm_memnet_hops", model, flags, sources, targets)
