"""What all papers' naive twins share: what they say of a sentence, and how the fast code is compared with it."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from zoo import pad_batch, teacher_forced

TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}


class Expected(NamedTuple):
    """What a twin says of one sentence."""

    logits: torch.Tensor  # T x words
    alignment: torch.Tensor | None  # T x S
    trace: dict[str, torch.Tensor]  # the mechanism's own weights by name, T x positions x ...


# (model, flags, source ids, target ids as the decoder reads them) -> what the twin says
Twin = Callable[..., Expected]


def assert_equals_the_twin(twin: Twin, model, flags: dict, sources: list[list[int]], targets: list[list[int]]) -> None:
    """Logits, every weight, and the gradient of every parameter, for a left-padded batch."""
    given_targets = teacher_forced(targets)
    batch = (pad_batch(sources, left=True), None, pad_batch(given_targets))
    logits, extra = model(*batch, need_trace=True)
    width = max(map(len, sources))
    fast_logits, naive_logits = [], []
    for row, (source, target) in enumerate(zip(sources, given_targets, strict=True)):
        expected = twin(model, flags, source, target)
        naive_logits.append(expected.logits)
        fast_logits.append(logits[row, : len(target)])
        torch.testing.assert_close(fast_logits[-1], expected.logits, **TOLERANCE)
        words, positions = slice(len(target)), slice(width - len(source), width)
        if expected.alignment is not None:
            torch.testing.assert_close(extra["attn"][0][row, words, positions], expected.alignment, **TOLERANCE)
        assert extra["trace"].keys() == expected.trace.keys()
        for part, weights in expected.trace.items():
            traced = extra["trace"][part]
            got = traced.values[row, words, words if traced.axes.over == "target words" else positions]
            if traced.axes.over == "spans":
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


def lstm_cells(decoder) -> list[dict]:
    """A decoder's LSTM as the twins' list of cells, whether it is looped over or called once."""
    if hasattr(decoder, "rnn"):
        return [layer["forward"] for layer in cells(decoder.rnn)]
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return [{name: getattr(cell, name) for name in names} for cell in decoder.cells]


def embedded(model, source: list[int], target: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The sentence's words as the twins take them, S x E and T x E."""
    return model.encoder.embed_tokens(torch.tensor(source)), model.decoder.embed_tokens(torch.tensor(target))
