r"""Key-value attention, and the attention it is compared with, for one sentence.

Mino, Utiyama, Sumita and Tokunaga, "Key-value Attention Mechanism for Neural Machine Translation", IJCNLP 2017
(https://aclanthology.org/I17-2049), Section 3.

    fwd_i   = enc_1(x_i, fwd_{i-1})                                 Eq. 1, a stack of left-to-right LSTMs
    bwd_i   = enc_2(x_i, bwd_{i+1})                                 Eq. 2, a stack of right-to-left LSTMs of its own
    h_i     = W_e [fwd_i ; bwd_i]                                   Eq. 3 (baseline, modified_init)
    d_0 of layer l = W_0 h_S,  W_0 of layer l                       the paper's d_1; cells start at zero
    d_j     = dec(d_{j-1}, y_{j-1})                                 Eq. 6, a stack of LSTMs
    a_ij    = exp(q_j^T h_i) / sum_l exp(q_j^T h_l)                 Eq. 8; q_j = d_{j-1} (previous) or d_j (current)
    c_j     = sum_i a_ij h_i                                        Eq. 7
    e_j     = tanh(W_d [d_j ; c_j])                                 Eq. 5
    p(y_j)  = softmax(W_o e_j + b_o)                                Eq. 4; W_o e_j + b_o is returned

With keys and values (attention):

    fwd_i   = [kf_i ; vf_i],  bwd_i = [kb_i ; vb_i]                 Eq. 9, halves
    k_i     = W_f [kf_i ; kb_i],  v_i = W_g [vf_i ; vb_i]           Eq. 10
    h_i     = [k_i ; v_i]                                           read by d_0 only
    q_j     = the first K/2 values of d (upper-half), or W_q d (projected)
    a_ij    = exp(q_j^T k_i) / sum_l exp(q_j^T k_l)                 Eq. 12
    c_j     = sum_i a_ij v_i                                        Eq. 11

With the modified score (modified_init), u being one on the first K/2 values and zero on the others:

    a_ij    = exp(q_j^T (h_i * u)) / sum_l exp(q_j^T (h_l * u))     Eq. 13; c_j is that of Eq. 7

The two directions of the encoder meet only in W_e, or W_f and W_g. d_j in e_j and in q_j, fwd_i and bwd_i are of the
top layers; c_j does not enter the recurrence.

Shapes: S source words, T target words, M values an embedding, U values a state of one encoder direction, K values a
decoder state, C values a context (K in baseline and modified_init, K/2 in attention), N target words.

    p["forward"], p["backward"]         lists over layers of cells, see ``recurrent``: weight_ih is 4U x M in the first
                                        layer, 4U x U in the others
    p["decoder"]   list over layers of cells: weight_ih is 4K x M in the first layer, 4K x K in the others
    p["W_0"]       list over the decoder's layers of K x K
    p["W_e"]       K x 2U (baseline, modified_init)
    p["W_f"], p["W_g"]                  K/2 x U, K/2 x U (attention)
    p["W_q"]       K/2 x K (attention with the projected query)
    p["W_d"]       K x (K + C)
    p["W_o"], p["b_o"]                  N x K, N
"""

from typing import Any

import torch
from torch import Tensor

from .recurrent import Cell, lstm, lstm_step, reverse


def stack_of_lstms(x: Tensor, cells: list[Cell]) -> Tensor:
    """States of the top layer, S x U, of a stack of left-to-right LSTMs over x, S x M."""
    for cell in cells:
        x, _ = lstm(x, **cell)
    return x


def encode(p: dict[str, Any], x: Tensor) -> tuple[Tensor, Tensor]:
    """fwd_1 .. fwd_S and bwd_1 .. bwd_S of the top layers, S x U each, for words x, S x M."""
    fwd = stack_of_lstms(x, p["forward"])  # S x U
    bwd = reverse(stack_of_lstms(reverse(x), p["backward"]))  # S x U
    return fwd, bwd


def joint_memory(p: dict[str, Any], fwd: Tensor, bwd: Tensor) -> Tensor:
    """h_i = W_e [fwd_i ; bwd_i] at every position, S x K."""
    return torch.stack([p["W_e"] @ torch.cat([fwd_i, bwd_i]) for fwd_i, bwd_i in zip(fwd, bwd, strict=True)])


def keys_and_values(p: dict[str, Any], fwd: Tensor, bwd: Tensor) -> tuple[Tensor, Tensor]:
    """k_i and v_i at every position, S x K/2 each."""
    half = fwd.shape[1] // 2
    keys, values = [], []
    for fwd_i, bwd_i in zip(fwd, bwd, strict=True):
        kf, vf = fwd_i[:half], fwd_i[half:]  # U/2, U/2
        kb, vb = bwd_i[:half], bwd_i[half:]  # U/2, U/2
        keys.append(p["W_f"] @ torch.cat([kf, kb]))
        values.append(p["W_g"] @ torch.cat([vf, vb]))
    return torch.stack(keys), torch.stack(values)


def key_query_of(p: dict[str, Any], d: Tensor, key_query: str) -> Tensor:
    """The query of the keys (K/2) made of a decoder state d (K).

    Raises:
        ValueError: key_query is not "upper-half" or "projected".
    """
    if key_query == "upper-half":
        return d[: d.shape[0] // 2]
    if key_query == "projected":
        return p["W_q"] @ d
    raise ValueError(f"key_query must be upper-half or projected, not {key_query!r}")


def attend(q: Tensor, keys: Tensor, values: Tensor) -> tuple[list[Tensor], Tensor]:
    """Weights a_1j .. a_Sj (scalars) and c_j = sum_i a_ij values_i (C) for a query q and S keys of the same width."""
    exponentials = [torch.exp(q @ key) for key in keys]
    total = exponentials[0]
    for exponential in exponentials[1:]:
        total = total + exponential
    weights = [exponential / total for exponential in exponentials]
    c = values.new_zeros(values.shape[1])  # C
    for weight, value in zip(weights, values, strict=True):
        c = c + weight * value
    return weights, c


def key_value(
    p: dict[str, Any], x: Tensor, y: Tensor, system: str, query: str, key_query: str
) -> tuple[Tensor, Tensor]:
    """Encoder and decoder of one of the three systems, teacher-forced.

    Args:
        p: the parameters, see the head of this file.
        x: embedded source words, S x M.
        y: embedded y_0 .. y_{T-1}, T x M.
        system: "baseline", "attention" or "modified_init".
        query: "previous" or "current".
        key_query: "upper-half" or "projected"; read by the system "attention" only.

    Returns:
        Logits of y_1 .. y_T, T x N, and the weights a_ij, T x S.

    Raises:
        ValueError: system, query or key_query is not one of the names above.
    """
    if query not in ("previous", "current"):
        raise ValueError(f"query must be previous or current, not {query!r}")
    fwd, bwd = encode(p, x)
    if system == "baseline":
        keys = values = joint_memory(p, fwd, bwd)  # S x K
        last = values[-1]  # K
    elif system == "attention":
        keys, values = keys_and_values(p, fwd, bwd)  # S x K/2, S x K/2
        last = torch.cat([keys[-1], values[-1]])  # K
    elif system == "modified_init":
        values = joint_memory(p, fwd, bwd)  # S x K
        width = values.shape[1]
        u = torch.cat([values.new_ones(width // 2), values.new_zeros(width - width // 2)])  # K
        keys = torch.stack([h_i * u for h_i in values])  # S x K
        last = values[-1]  # K
    else:
        raise ValueError(f"system must be baseline, attention or modified_init, not {system!r}")
    states = [(W_0 @ last, torch.zeros_like(last)) for W_0 in p["W_0"]]  # (K, K) a layer

    logits, weights = [], []
    for y_previous in y:
        d_previous = states[-1][0]  # K
        below = y_previous
        following = []
        for cell, (d, memory) in zip(p["decoder"], states, strict=True):
            d, memory = lstm_step(below, d, memory, **cell)
            following.append((d, memory))
            below = d
        states = following
        d_j = states[-1][0]  # K

        q = d_previous if query == "previous" else d_j  # K
        if system == "attention":
            q = key_query_of(p, q, key_query)  # K/2
        a, c = attend(q, keys, values)
        e_j = torch.tanh(p["W_d"] @ torch.cat([d_j, c]))  # K
        logits.append(p["W_o"] @ e_j + p["b_o"])
        weights.append(torch.stack(a))
    return torch.stack(logits), torch.stack(weights)
