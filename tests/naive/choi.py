r"""Fine-grained attention, and the attentions it is compared with, for one sentence.

Choi, Cho and Bengio, "Fine-grained attention mechanism for neural machine translation", Neurocomputing 2018
(https://doi.org/10.1016/j.neucom.2018.01.007), Sections 2, 2.1 and 3. Of the scores' functions it says only that they
are fully connected with one hidden layer, where tanh can be applied; of the decoder's first state it says nothing.

    h_t      = [fwd_t ; bwd_t]                                           top layer of a stacked bidirectional LSTM
    z_0 of layer l = tanh(W_s bwd_1),  W_s and bwd_1 of layer l          cells start at zero
    e_{t',t} = v^T tanh(W z_{t'-1} + U h_t + b)                          Eq. 3, att
    e_{t',t} = v^T tanh(W z_{t'-1} + U h_t + Y y_{t'-1} + b)             Eq. 6, att-y
    e_{t',t} = V tanh(W z_{t'-1} + U h_t + Y y_{t'-1} + b)               Eq. 7, att-y-2d: one score a value of h_t
    a_{t',t} = exp(e_{t',t}) / sum_k exp(e_{t',k})                       Eq. 4; att-y-2d: each row of V by itself
    c_{t'}   = sum_t a_{t',t} h_t                                        Eq. 5; att-y-2d: element by element
    z_{t'}   = LSTM([y_{t'-1} ; c_{t'}], z_{t'-1})
    p(w_{t'}) = softmax(W_o z_{t'} + c)                                  W_o z_{t'} + c is returned

With several layers (an extension, not in the paper) layer l >= 2 of the decoder reads z_{t'} of the layer below; the
score and the logits read the top layer.

Shapes: S source words, T target words, M values an embedding, H values a state of one encoder direction, d = 2H values
of h_t, Z values a decoder state, A values of the score's hidden layer, K target words.

    p["encoder"]   list over layers of {"forward": cell, "backward": cell}, see ``recurrent``
    p["decoder"]   list over layers of cells; weight_ih is 4Z x (M + d) in the first layer, 4Z x Z in the others
    p["W_s"]       list over layers of Z x H
    p["W"], p["U"], p["b"]              A x Z, A x d, A
    p["Y"]         A x M (att-y, att-y-2d)
    p["v"]         A (att, att-y)
    p["V"]         d x A (att-y-2d)
    p["W_o"], p["c"]                    K x Z, K
"""

from typing import Any

import torch
from torch import Tensor

from .recurrent import lstm_step, stacked_bidirectional_lstm


def hidden_layer(p: dict[str, Any], z: Tensor, h_t: Tensor, y: Tensor, variant: str) -> Tensor:
    """The score's hidden layer (A) from z_{t'-1} (Z), h_t (d) and y_{t'-1} (M, not read by att)."""
    if variant == "att":
        return torch.tanh(p["W"] @ z + p["U"] @ h_t + p["b"])
    return torch.tanh(p["W"] @ z + p["U"] @ h_t + p["Y"] @ y + p["b"])


def softmax(scores: list[Tensor]) -> list[Tensor]:
    """The weights (scalars) of S scores (scalars)."""
    exponentials = [torch.exp(score) for score in scores]
    total = exponentials[0]
    for exponential in exponentials[1:]:
        total = total + exponential
    return [exponential / total for exponential in exponentials]


def attend_word(p: dict[str, Any], z: Tensor, h: Tensor, y: Tensor, variant: str) -> tuple[Tensor, Tensor]:
    """One weight a position (att, att-y): the weights, S, and c_{t'}, d, for the annotations h, S x d."""
    weights = softmax([p["v"] @ hidden_layer(p, z, h_t, y, variant) for h_t in h])
    c = h.new_zeros(h.shape[1])  # d
    for weight, h_t in zip(weights, h, strict=True):
        c = c + weight * h_t
    return torch.stack(weights), c


def attend_each_value(p: dict[str, Any], z: Tensor, h: Tensor, y: Tensor, variant: str) -> tuple[Tensor, Tensor]:
    """One weight a value of a position (att-y-2d): the weights, S x d, and c_{t'}, d, for the annotations h, S x d."""
    hidden = [hidden_layer(p, z, h_t, y, variant) for h_t in h]  # a list over positions of A
    columns, c = [], []
    for value in range(h.shape[1]):
        weights = softmax([p["V"][value] @ hidden_t for hidden_t in hidden])
        expected = h.new_zeros(())
        for weight, h_t in zip(weights, h, strict=True):
            expected = expected + weight * h_t[value]
        columns.append(torch.stack(weights))  # S
        c.append(expected)
    return torch.stack(columns, dim=1), torch.stack(c)


def fine_grained(p: dict[str, Any], x: Tensor, y: Tensor, variant: str) -> tuple[Tensor, Tensor]:
    """Encoder and decoder with one of the three attentions, teacher-forced.

    Args:
        p: the parameters, see the head of this file.
        x: embedded source words, S x M.
        y: embedded y_0 .. y_{T-1}, T x M.
        variant: "att", "att-y" or "att-y-2d".

    Returns:
        Logits of y_1 .. y_T, T x K, and the weights a_{t',t}, T x S (att, att-y) or T x S x d (att-y-2d).

    Raises:
        ValueError: variant is not "att", "att-y" or "att-y-2d".
    """
    if variant not in ("att", "att-y", "att-y-2d"):
        raise ValueError(f"variant must be att, att-y or att-y-2d, not {variant!r}")
    attend = attend_each_value if variant == "att-y-2d" else attend_word
    annotations, finals = stacked_bidirectional_lstm(x, p["encoder"])
    h = annotations[-1]  # S x d
    states = []
    for W_s, final in zip(p["W_s"], finals, strict=True):
        bwd_1, _ = final["backward"]  # H
        z_0 = torch.tanh(W_s @ bwd_1)  # Z
        states.append((z_0, torch.zeros_like(z_0)))  # (Z, Z)

    logits, weights = [], []
    for y_previous in y:
        a, c = attend(p, states[-1][0], h, y_previous, variant)
        below = torch.cat([y_previous, c])  # M + d
        following = []
        for cell, (z, memory) in zip(p["decoder"], states, strict=True):
            z, memory = lstm_step(below, z, memory, **cell)
            following.append((z, memory))
            below = z
        states = following
        logits.append(p["W_o"] @ states[-1][0] + p["c"])
        weights.append(a)
    return torch.stack(logits), torch.stack(weights)
