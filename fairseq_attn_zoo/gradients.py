"""Backward passes written by hand: what they have in common. PyTorch alone."""

import functools
from collections.abc import Callable
from typing import Any

import torch


def first_derivative_only(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator of ``backward`` in a ``torch.autograd.Function`` whose gradient cannot be differentiated again.

    PyTorch's ``once_differentiable`` lets ``create_graph=True`` pass where the incoming gradient needs none, as that of a
    loss does not, and returns a gradient that is a constant to whoever differentiates it. Here it is refused.

    Args:
        what: whose gradient it is, for the message

    Raises:
        RuntimeError: in the backward pass, if it was asked for with ``create_graph=True``
    """

    def decorate(backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def once(ctx: Any, *gradients: Any) -> Any:
            if torch.is_grad_enabled():  # in a backward pass: whether its own graph is kept
                raise RuntimeError(
                    f"the gradient of {what} cannot be differentiated again; leave create_graph=True out"
                )
            return backward(ctx, *gradients)

        return once

    return decorate
