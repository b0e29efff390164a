r"""Output layer and cross-entropy in one, chunk by chunk, so that the logits of a batch never exist at once. PyTorch alone.

For P words and a vocabulary of V, logits and their gradient are P x V each: with 4,000 words and 100,000 types 3 GiB, far
more than everything else of a recurrent model. Here a chunk of words is projected, its loss is taken, and while its logits
are there their gradient is multiplied into those of features and weights. The matrix products are the same three as ever.

.. math::
    L = \sum_i (1 - \epsilon - \epsilon')\, (-\log p(y_i)) + \epsilon' \sum_v -\log p_i(v) \qquad \epsilon' = \epsilon / (V - 1)

which is fairseq's ``label_smoothed_cross_entropy``, and with epsilon = 0 its ``cross_entropy``.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .gradients import first_derivative_only


class Loss(NamedTuple):
    """Sums over words, in nats."""

    loss: Tensor  # with label smoothing
    nll: Tensor  # without; no gradient flows through it
    correct: Tensor  # words whose own logit is the largest; 0 unless they were to be counted


def chunked_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float = 0.0,
    chunk: int = 512,
    count_correct: bool = False,
) -> Loss:
    """The loss of predicting ``targets`` from ``features``.

    Args:
        features: what the output layer reads, P x F
        weight: of the output layer, V x F
        bias: of the output layer, V, or None
        targets: P
        smoothing: epsilon
        chunk: words that are projected at once
        count_correct: whether to look for the largest logit of every word too
    """
    wanted = torch.is_grad_enabled()  # asked here: inside of an autograd function it is always off
    return Loss(*ChunkedCrossEntropy.apply(features, weight, bias, targets, smoothing, chunk, count_correct, wanted))


class ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, features, weight, bias, targets, smoothing, chunk, count_correct, wanted):
        wanted = wanted and any(ctx.needs_input_grad[:3])
        wide = torch.promote_types(features.dtype, torch.float32)
        # Sums over chunks are kept wide: in half precision a chunk's part would be rounded away.
        grad_features = torch.empty_like(features) if wanted else None
        grad_weight = torch.zeros_like(weight, dtype=wide) if wanted else None
        grad_bias = torch.zeros_like(bias, dtype=wide) if wanted and bias is not None else None
        loss, nll = features.new_zeros((), dtype=wide), features.new_zeros((), dtype=wide)
        correct = torch.zeros((), dtype=torch.long, device=features.device)
        other = smoothing / (weight.size(0) - 1)  # epsilon'
        dtype = product_dtype(features)
        matrix, offset = weight.to(dtype), None if bias is None else bias.to(dtype)
        # In float32 all chunks share two pieces of memory: new ones for each are handed out by the system page by page.
        logits_memory = features.new_empty(min(chunk, features.size(0)), weight.size(0), dtype=dtype)
        log_probabilities_memory = torch.empty_like(logits_memory, dtype=wide)
        for begin in range(0, features.size(0), chunk):
            part = slice(begin, begin + chunk)
            target = targets[part].unsqueeze(1)
            logits, log_probabilities = logits_memory[: len(target)], log_probabilities_memory[: len(target)]
            if offset is None:
                torch.mm(features[part].to(dtype), matrix.t(), out=logits)
            else:
                torch.addmm(offset, features[part].to(dtype), matrix.t(), out=logits)
            torch.log_softmax(logits, dim=1, dtype=wide, out=log_probabilities)
            part_nll = -log_probabilities.gather(1, target).sum()
            nll += part_nll
            loss += (1 - smoothing - other) * part_nll
            if smoothing:
                loss -= other * log_probabilities.sum()
            if count_correct:
                correct += (log_probabilities.argmax(dim=1, keepdim=True) == target).sum()
            if grad_features is not None and grad_weight is not None:
                # sum over v of the weight of -log p(v) is 1 - epsilon - epsilon' + V epsilon' = 1
                gradient = log_probabilities.exp_()
                if smoothing:
                    gradient -= other
                own = gradient.new_full((1, 1), -(1 - smoothing - other))
                gradient.scatter_add_(1, target, own.expand_as(target))
                grad_features[part] = (gradient if dtype == wide else logits.copy_(gradient)) @ matrix
                grad_weight.addmm_(gradient.t(), features[part].to(wide))
                if grad_bias is not None:
                    grad_bias += gradient.sum(0)
        ctx.save_for_backward(grad_features, grad_weight, grad_bias)
        ctx.dtypes = (features.dtype, weight.dtype, None if bias is None else bias.dtype)
        ctx.mark_non_differentiable(nll, correct)
        return loss, nll, correct

    @staticmethod
    @first_derivative_only("chunked_cross_entropy")
    def backward(ctx, grad_loss, *_):
        gradients = [
            None if gradient is None else (gradient * grad_loss).to(dtype)
            for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        ]
        return (*gradients, None, None, None, None, None)


def product_dtype(features: Tensor) -> torch.dtype:
    """What a linear layer would compute in: what is written to ``out=`` is not cast by autocast."""
    device = features.device.type
    if torch.is_autocast_enabled(device) and features.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return features.dtype
