r"""Global attention, for one sentence.

Luong, Pham and Manning, "Effective Approaches to Attention-based Neural Machine Translation", EMNLP 2015
(https://arxiv.org/abs/1508.04025), Sections 3, 3.1 and 3.3.

    hs_s = [fwd_s ; bwd_s]                                  top layer of a stacked bidirectional LSTM
    h_0, c_0 of layer l = [fwd_S ; bwd_1]                   of the encoder's layer l
    h_t  = LSTM([y_{t-1} ; a_{t-1}], h_{t-1}),  a_0 = 0     input feeding; LSTM(y_{t-1}, h_{t-1}) without
    score(h_t, hs_s) = h_t^T hs_s                           dot
                       h_t^T W_a hs_s                       general
                       v_a^T tanh(W_a [h_t ; hs_s])         concat
    alpha_ts = exp(score(h_t, hs_s)) / sum_s' exp(score(h_t, hs_s'))
    c_t  = sum_s alpha_ts hs_s
    a_t  = tanh(W_c [c_t ; h_t])
    p(y_t) = softmax(W a_t)                                 W a_t is returned

Layer l >= 2 of the decoder reads h_t of the layer below; the query h_t is the top layer's, at the current step.

Shapes: S source words, T target words, M values an embedding, H values a decoder state and an encoder state hs_s (each
of the encoder's directions has H/2), A values of concat's hidden layer, R values of a_t, K target words.

    p["encoder"]   list over layers of {"forward": cell, "backward": cell}, see ``recurrent``
    p["decoder"]   list over layers of cells; weight_ih is 4H x (M + R) in the first layer with input feeding and 4H x M
                   without, 4H x H in the others
    p["W_a"]       H x H (general), A x 2H (concat)
    p["v_a"]       A (concat)
    p["W_c"]       R x 2H
    p["W"]         K x R
"""

from typing import Any

import torch
from torch import Tensor

from .recurrent import lstm_step, stacked_bidirectional_lstm


def score_pair(p: dict[str, Any], h_t: Tensor, hs_s: Tensor, score: str) -> Tensor:
    """The score (a scalar) of one decoder state h_t (H) and one encoder state hs_s (H).

    Raises:
        ValueError: score is not "dot", "general" or "concat".
    """
    if score == "dot":
        return h_t @ hs_s
    if score == "general":
        return h_t @ (p["W_a"] @ hs_s)
    if score == "concat":
        return p["v_a"] @ torch.tanh(p["W_a"] @ torch.cat([h_t, hs_s]))
    raise ValueError(f"score must be dot, general or concat, not {score!r}")


def global_attention(p: dict[str, Any], x: Tensor, y: Tensor, score: str, input_feeding: bool) -> tuple[Tensor, Tensor]:
    """Encoder and decoder with global attention, teacher-forced.

    Args:
        p: the parameters, see the head of this file.
        x: embedded source words, S x M.
        y: embedded y_0 .. y_{T-1}, T x M.
        score: "dot", "general" or "concat".
        input_feeding: whether the first layer reads a_{t-1} beside the word.

    Returns:
        Logits of y_1 .. y_T, T x K, and the weights alpha_ts, T x S.
    """
    encoder_states, finals = stacked_bidirectional_lstm(x, p["encoder"])
    hs = encoder_states[-1]  # S x H
    states = []
    for final in finals:
        fwd_h, fwd_c = final["forward"]
        bwd_h, bwd_c = final["backward"]
        states.append((torch.cat([fwd_h, bwd_h]), torch.cat([fwd_c, bwd_c])))  # (H, H)
    a_t = x.new_zeros(p["W_c"].shape[0])  # R

    logits, weights = [], []
    for y_previous in y:
        below = torch.cat([y_previous, a_t]) if input_feeding else y_previous
        following = []
        for cell, (h, c) in zip(p["decoder"], states, strict=True):
            h, c = lstm_step(below, h, c, **cell)
            following.append((h, c))
            below = h
        states = following
        h_t = states[-1][0]  # H

        exponentials = [torch.exp(score_pair(p, h_t, hs_s, score)) for hs_s in hs]
        total = exponentials[0]
        for exponential in exponentials[1:]:
            total = total + exponential
        alpha = [exponential / total for exponential in exponentials]
        c_t = hs.new_zeros(hs.shape[1])  # H
        for alpha_s, hs_s in zip(alpha, hs, strict=True):
            c_t = c_t + alpha_s * hs_s

        a_t = torch.tanh(p["W_c"] @ torch.cat([c_t, h_t]))  # R
        logits.append(p["W"] @ a_t)
        weights.append(torch.stack(alpha))
    return torch.stack(logits), torch.stack(weights)
