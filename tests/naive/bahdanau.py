r"""RNNsearch and RNNencdec, for one sentence.

Bahdanau, Cho and Bengio, "Neural Machine Translation by Jointly Learning to Align and Translate", ICLR 2015
(https://arxiv.org/abs/1409.0473), Sections 3.1, 3.2 and Appendix A.

    h_j  = [fwd_j ; bwd_j]                                          bidirectional GRU
    s_0  = tanh(W_s bwd_1)
    e_ij = v^T tanh(W s_{i-1} + V h_j)
    a_ij = exp(e_ij) / sum_k exp(e_ik)
    c_i  = sum_j a_ij h_j
    r_i  = sigmoid(W_r E y_{i-1} + U_r s_{i-1} + C_r c_i)
    z_i  = sigmoid(W_z E y_{i-1} + U_z s_{i-1} + C_z c_i)
    s~_i = tanh(W_c E y_{i-1} + U_c [r_i * s_{i-1}] + C_c c_i)      the reset gate is applied before U_c
    s_i  = (1 - z_i) * s_{i-1} + z_i * s~_i
    t~_i = U_o s_{i-1} + V_o E y_{i-1} + C_o c_i
    t_i  = [max(t~_{i,2j-1}, t~_{i,2j})]_{j=1..l}
    p(y_i) = softmax(W_o t_i)                                       W_o t_i is returned

RNNencdec reads the source from left to right only. c_i is the encoder's last state for every i, and s_0 = tanh(W_s c).

With several layers (an extension, not in the paper) layer l >= 2 of the decoder is the same GRU without C, and reads
s_i of the layer below in place of E y_{i-1}. It starts from the encoder's layer l as the first does from layer 1. The
alignment and the readout read s_{i-1} of the top layer; h_j and RNNencdec's c are the encoder's top layer.

Shapes: S source words, T target words, M values an embedding, n values a state, C values an annotation (2n in
RNNsearch, n in RNNencdec), A values of the alignment's hidden layer, l maxout units, K target words.

    p["encoder"]   list over layers of {"forward": cell, "backward": cell}, see ``recurrent``; RNNencdec: "forward" only
    p["layers"]    list over layers of {"W_s": n x n, "W_r", "W_z", "W_c": n x M, "U_r", "U_z", "U_c": n x n,
                   "C_r", "C_z", "C_c": n x C}; from the second layer on, W_* is n x n and there is no C_*
    p["W"], p["V"], p["v"]              A x n, A x C, A (RNNsearch only)
    p["U_o"], p["V_o"], p["C_o"]        2l x n, 2l x M, 2l x C
    p["W_o"]                            K x l
"""

from typing import Any

import torch
from torch import Tensor

from .recurrent import stacked_bidirectional_gru, stacked_forward_gru


def align(p: dict[str, Any], s: Tensor, h: Tensor) -> list[Tensor]:
    """Weights a_i1 .. a_iS (scalars) of the annotations h, S x C, for the previous state s, n."""
    scores = [p["v"] @ torch.tanh(p["W"] @ s + p["V"] @ h_j) for h_j in h]
    exponentials = [torch.exp(e_ij) for e_ij in scores]
    total = exponentials[0]
    for exponential in exponentials[1:]:
        total = total + exponential
    return [exponential / total for exponential in exponentials]


def expected_annotation(weights: list[Tensor], h: Tensor) -> Tensor:
    """c_i = sum_j a_ij h_j, C values."""
    c = h.new_zeros(h.shape[1])  # C
    for a_ij, h_j in zip(weights, h, strict=True):
        c = c + a_ij * h_j
    return c


def first_layer(q: dict[str, Tensor], y: Tensor, s: Tensor, c: Tensor) -> Tensor:
    """s_i of the first layer (n) from E y_{i-1} (M), s_{i-1} (n) and c_i (C)."""
    r = torch.sigmoid(q["W_r"] @ y + q["U_r"] @ s + q["C_r"] @ c)  # n
    z = torch.sigmoid(q["W_z"] @ y + q["U_z"] @ s + q["C_z"] @ c)  # n
    candidate = torch.tanh(q["W_c"] @ y + q["U_c"] @ (r * s) + q["C_c"] @ c)  # n
    return (1 - z) * s + z * candidate


def upper_layer(q: dict[str, Tensor], below: Tensor, s: Tensor) -> Tensor:
    """s_i of a layer above the first (n) from s_i of the layer below (n) and its own s_{i-1} (n)."""
    r = torch.sigmoid(q["W_r"] @ below + q["U_r"] @ s)  # n
    z = torch.sigmoid(q["W_z"] @ below + q["U_z"] @ s)  # n
    candidate = torch.tanh(q["W_c"] @ below + q["U_c"] @ (r * s))  # n
    return (1 - z) * s + z * candidate


def next_states(p: dict[str, Any], y: Tensor, states: list[Tensor], c: Tensor) -> list[Tensor]:
    """s_i of every layer from E y_{i-1}, s_{i-1} of every layer and c_i."""
    following = [first_layer(p["layers"][0], y, states[0], c)]
    for q, s in zip(p["layers"][1:], states[1:], strict=True):
        following.append(upper_layer(q, following[-1], s))
    return following


def readout(p: dict[str, Any], s: Tensor, y: Tensor, c: Tensor) -> Tensor:
    """W_o t_i (K) from s_{i-1} of the top layer, E y_{i-1} and c_i."""
    t_tilde = p["U_o"] @ s + p["V_o"] @ y + p["C_o"] @ c  # 2l
    # The equation counts from 1, so its neighbours 2j - 1 and 2j are 2j - 2 and 2j - 1 here.
    t = torch.stack([torch.maximum(t_tilde[2 * j - 2], t_tilde[2 * j - 1]) for j in range(1, len(t_tilde) // 2 + 1)])
    return p["W_o"] @ t


def rnnsearch(p: dict[str, Any], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """RNNsearch, teacher-forced.

    Args:
        p: the parameters, see the head of this file.
        x: embedded source words, S x M.
        y: E y_0 .. E y_{T-1}, T x M.

    Returns:
        Logits of y_1 .. y_T, T x K, and the weights a_ij, T x S.
    """
    annotations, finals = stacked_bidirectional_gru(x, p["encoder"])
    h = annotations[-1]  # S x C
    states = [torch.tanh(q["W_s"] @ final["backward"]) for q, final in zip(p["layers"], finals, strict=True)]

    logits, weights = [], []
    for y_previous in y:
        a = align(p, states[-1], h)
        c = expected_annotation(a, h)  # C
        logits.append(readout(p, states[-1], y_previous, c))
        weights.append(torch.stack(a))
        states = next_states(p, y_previous, states, c)
    return torch.stack(logits), torch.stack(weights)


def rnnencdec(p: dict[str, Any], x: Tensor, y: Tensor) -> tuple[Tensor, None]:
    """RNNencdec, teacher-forced: c_i is the encoder's last state at every step, and nothing is aligned.

    Args:
        p: the parameters, see the head of this file.
        x: embedded source words, S x M.
        y: E y_0 .. E y_{T-1}, T x M.

    Returns:
        Logits of y_1 .. y_T, T x K, and None in place of weights.
    """
    encoder_states = stacked_forward_gru(x, p["encoder"])  # a list over layers of S x n
    last = [layer_states[-1] for layer_states in encoder_states]  # a list over layers of n
    c = last[-1]  # n
    states = [torch.tanh(q["W_s"] @ last_state) for q, last_state in zip(p["layers"], last, strict=True)]

    logits = []
    for y_previous in y:
        logits.append(readout(p, states[-1], y_previous, c))
        states = next_states(p, y_previous, states, c)
    return torch.stack(logits), None
