"""Dropout with cheap random numbers: on a CPU, drawing them costs more than the product with the mask. PyTorch alone."""

import math
from typing import Any

import torch
from torch import Tensor, nn


class Dropout(nn.Dropout):
    """``nn.Dropout``: in training each value is zero with probability p, and the others are multiplied by 1 / (1 - p).

    On a CPU the mask comes from :func:`random_mask` (other random numbers than ``nn.Dropout``'s, from the same generator);
    elsewhere PyTorch's own dropout runs, one kernel.
    """

    def forward(self, values: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return values
        if values.device.type != "cpu" or self.p == 1:
            return super().forward(values)
        return Masked.apply(values, *random_mask(values.shape, self.p, values.device))


def random_mask(shape: tuple[int, ...], dropout: float, device: torch.device) -> tuple[Tensor, float]:
    """True where dropout keeps a value, and by what the kept values are multiplied.

    Each decision takes 16 random bits, which is several times cheaper than a random number in float32: the probability is
    ``dropout`` rounded to a multiple of 2^-16.
    """
    dropped = min(round(dropout * 2**16), 2**16 - 1)
    values = math.prod(shape)
    bits = torch.empty(-(-values // 4), dtype=torch.int64, device=device).random_(-(2**63), None).view(torch.int16)
    return (bits[:values] >= dropped - 2**15).view(shape), 2**16 / (2**16 - dropped)


class Masked(torch.autograd.Function):
    """``values * keep * scale``, of which only the mask is kept for the backward pass, one byte a value."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, keep: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.scale = scale
        # PyTorch turns bytes into numbers seven times as fast as truth values, and a product with these is as slow.
        return keep.view(torch.uint8).to(values.dtype).mul_(scale).mul_(values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return Masked.apply(grad, keep, ctx.scale), None, None
