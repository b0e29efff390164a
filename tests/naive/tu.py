r"""RNNsearch with linguistic coverage and fertility, for one sentence.

Tu, Lu, Liu, Liu and Li, "Modeling Coverage for Neural Machine Translation", ACL 2016 (https://arxiv.org/abs/1601.04811),
Sections 3.1.1 and 3.2. The coverage of a source word is the attention it has had, divided by what it is expected to need:

    C_0j  = 0
    Phi_j = N sigmoid(U_f h_j)                                      between 0 and N
    e_ij  = v^T tanh(W s_{i-1} + V h_j + V_a C_{i-1,j})
    a_ij  = exp(e_ij) / sum_k exp(e_ik)
    C_ij  = C_{i-1,j} + a_ij / Phi_j

Everything else is RNNsearch, see ``bahdanau``. Coverage is one number a source word.

    p   the parameters of ``bahdanau``, and
        p["U_f"]   1 x C
        p["V_a"]   A values
"""

from typing import Any

import torch
from torch import Tensor

from .bahdanau import expected_annotation, next_states, readout
from .recurrent import stacked_bidirectional_gru


def attend(
    p: dict[str, Any], s: Tensor, h: Tensor, covered: list[Tensor], fertilities: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """One word: the weights a_i1 .. a_iS and the coverage C_i1 .. C_iS, from s_{i-1}, h (S x C), C_{i-1,j} and Phi_j."""
    exponentials = []
    for h_j, c_j in zip(h, covered, strict=True):
        hidden = torch.tanh(p["W"] @ s + p["V"] @ h_j + p["V_a"].reshape(-1) * c_j)  # A
        exponentials.append(torch.exp(p["v"] @ hidden))
    total = sum(exponentials)
    a = [exponential / total for exponential in exponentials]
    return a, [c_j + a_ij / phi_j for c_j, a_ij, phi_j in zip(covered, a, fertilities, strict=True)]


def fertility(p: dict[str, Any], h: Tensor, max_fertility: float) -> list[Tensor]:
    """Phi_1 .. Phi_S."""
    return [max_fertility * torch.sigmoid(p["U_f"].reshape(-1) @ h_j) for h_j in h]


def coverage(p: dict[str, Any], x: Tensor, y: Tensor, max_fertility: float) -> tuple[Tensor, Tensor, Tensor]:
    """RNNsearch with coverage, teacher-forced.

    Args:
        p: the parameters, see the head of this file.
        x: embedded source words, S x M.
        y: E y_0 .. E y_{T-1}, T x M.
        max_fertility: N.

    Returns:
        Logits of y_1 .. y_T, T x K; the weights a_ij, T x S; the coverage C_ij after each word, T x S.
    """
    annotations, finals = stacked_bidirectional_gru(x, p["encoder"])
    h = annotations[-1]  # S x C
    fertilities = fertility(p, h, max_fertility)
    states = [torch.tanh(q["W_s"] @ final["backward"]) for q, final in zip(p["layers"], finals, strict=True)]

    covered = [h.new_zeros(()) for _ in h]
    logits, weights, coverages = [], [], []
    for y_previous in y:
        s = states[-1]
        a, covered = attend(p, s, h, covered, fertilities)
        context = expected_annotation(a, h)  # C
        logits.append(readout(p, s, y_previous, context))
        weights.append(torch.stack(a))
        coverages.append(torch.stack(covered))
        states = next_states(p, y_previous, states, context)
    return torch.stack(logits), torch.stack(weights), torch.stack(coverages)
