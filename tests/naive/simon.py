r"""Memory networks with several hops, for one sentence.

Simon and Schwenk, "Neural Machine Translation with Memory Network Based Attention", Sections 2 and 3: hops over the
preceding target words, then over the source.

    h^enc_j = [fwd_j ; bwd_j]                               top layer of a stacked bidirectional LSTM
    h_0 of layer l = [fwd_S ; bwd_1]                        of the encoder's layer l; the cell likewise
    c_i     = the memory network's answer to h_{i-1}
    h_i     = LSTM([y_{i-1} ; c_i], h_{i-1})
    p(y_i)  = softmax(W h_i + b)                            W h_i + b is returned

A hop over keys k_j and values v_j with the query q:

    p_j     = exp(q^T k_j) / sum_l exp(q^T k_l)             Eq. 4
    o       = sum_j p_j v_j                                 Eq. 5
    u       = o                                             where there is one hop in all
    u       = o + ReLU(q)                                   at every hop, where there are two or more in all

The first hop's q is h_{i-1}, every other hop's q is the u before it, and c_i is the last u. The hops over the target
memory come first, then those over the source memory; both kinds count in "hops in all", and hops share their
parameters. Memories at step i, counted from 1:

    source  k_j = v_j = h^enc_j                             1 <= j <= S
    target  k_j = EmbK(y_j) + TimeK(i - j)                  0 <= j <= i - 1
            v_j = EmbV(y_j) + TimeV(i - j)

With several layers (an extension, not in the paper) layer l >= 2 of the decoder reads h_i of the layer below; h_{i-1}
in the query and h_i in the logits are the top layer's.

Without the LSTM the first query is one learned vector at every position, and the answer gives the word:

    p(y_i)  = softmax(W u)                                  W u is returned, u being the last hop's

Shapes: S source words, T target words, M values an embedding, H values a decoder state and an encoder state h^enc_j
(each of the encoder's directions has H/2), L the longest distance, K target words.

    p["encoder"]   list over layers of {"forward": cell, "backward": cell}, see ``recurrent``
    p["decoder"]   list over layers of cells (with the LSTM only); weight_ih is 4H x (M + H) in the first layer, 4H x H
                   in the others
    p["key_words"], p["value_words"]    EmbK, EmbV: K x H each (with target hops only)
    p["key_times"], p["value_times"]    TimeK, TimeV: L x H each (with target hops only); row number d - 1 is distance d
    p["query"]     H (without the LSTM only)
    p["W"]         K x H
    p["b"]         K (with the LSTM only)
"""

from typing import Any

import torch
from torch import Tensor

from .recurrent import lstm_step, stacked_bidirectional_lstm


def hop(q: Tensor, keys: Tensor, values: Tensor, with_query: bool) -> tuple[Tensor, Tensor]:
    """One hop.

    Args:
        q: the query, H.
        keys: k_1 .. k_n, n x H.
        values: v_1 .. v_n, n x H.
        with_query: whether ReLU(q) is added.

    Returns:
        u, H, and the weights p_1 .. p_n, n.
    """
    exponentials = [torch.exp(q @ k_j) for k_j in keys]
    total = exponentials[0]
    for exponential in exponentials[1:]:
        total = total + exponential
    weights = [exponential / total for exponential in exponentials]
    o = values.new_zeros(values.shape[1])  # H
    for p_j, v_j in zip(weights, values, strict=True):
        o = o + p_j * v_j
    u = o + torch.relu(q) if with_query else o  # H
    return u, torch.stack(weights)


def target_memory(p: dict[str, Any], preceding: list[int]) -> tuple[Tensor, Tensor]:
    """Keys and values, i x H each, of the preceding words y_0 .. y_{i-1} at step i."""
    i = len(preceding)
    keys, values = [], []
    for j, word in enumerate(preceding):
        distance = i - j  # from i down to 1
        keys.append(p["key_words"][word] + p["key_times"][distance - 1])
        values.append(p["value_words"][word] + p["value_times"][distance - 1])
    return torch.stack(keys), torch.stack(values)


def answer(
    p: dict[str, Any], q: Tensor, source: Tensor, preceding: list[int], source_hops: int, target_hops: int
) -> tuple[Tensor, Tensor, Tensor]:
    """All hops of one step.

    Args:
        p: the parameters, see the head of this file.
        q: the first query, H.
        source: h^enc_1 .. h^enc_S, S x H.
        preceding: the numbers of y_0 .. y_{i-1}.
        source_hops: the number of hops over the source, one or more.
        target_hops: the number of hops over the target, zero or more.

    Returns:
        u of the last hop, H, and the weights of every hop: source_hops x S and target_hops x i.
    """
    with_query = source_hops + target_hops > 1
    u = q
    target_weights = q.new_zeros(0, len(preceding))  # 0 x i
    for _ in range(target_hops):
        keys, values = target_memory(p, preceding)  # i x H, i x H
        u, weights = hop(u, keys, values, with_query)  # H, i
        target_weights = torch.cat([target_weights, weights[None]])
    source_weights = q.new_zeros(0, source.shape[0])  # 0 x S
    for _ in range(source_hops):
        u, weights = hop(u, source, source, with_query)  # H, S
        source_weights = torch.cat([source_weights, weights[None]])
    return u, source_weights, target_weights


def memory_network(
    p: dict[str, Any], x: Tensor, y: Tensor, words: list[int], source_hops: int, target_hops: int
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Encoder, memory network and the decoder's LSTM, teacher-forced.

    Args:
        p: the parameters, see the head of this file.
        x: embedded source words, S x M.
        y: embedded y_0 .. y_{T-1}, T x M.
        words: the numbers of y_0 .. y_{T-1}.
        source_hops: the number of hops over the source, one or more.
        target_hops: the number of hops over the target, zero or more.

    Returns:
        Logits of y_1 .. y_T, T x K, the source's weights, T x source_hops x S, and a list of the target's weights at
        the steps i = 1 .. T, target_hops x i.
    """
    encoder_states, finals = stacked_bidirectional_lstm(x, p["encoder"])
    source = encoder_states[-1]  # S x H
    states = []
    for final in finals:
        fwd_h, fwd_c = final["forward"]
        bwd_h, bwd_c = final["backward"]
        states.append((torch.cat([fwd_h, bwd_h]), torch.cat([fwd_c, bwd_c])))  # (H, H)

    logits, source_weights, target_weights = [], [], []
    for i in range(1, len(words) + 1):
        h_previous = states[-1][0]  # H
        c_i, on_source, on_target = answer(p, h_previous, source, words[:i], source_hops, target_hops)
        below = torch.cat([y[i - 1], c_i])  # M + H
        following = []
        for cell, (h, c) in zip(p["decoder"], states, strict=True):
            h, c = lstm_step(below, h, c, **cell)
            following.append((h, c))
            below = h
        states = following
        h_i = states[-1][0]  # H
        logits.append(p["W"] @ h_i + p["b"])
        source_weights.append(on_source)
        target_weights.append(on_target)
    return torch.stack(logits), torch.stack(source_weights), target_weights


def without_lstm(
    p: dict[str, Any], x: Tensor, y_words: list[int], source_hops: int, target_hops: int
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Encoder and memory network, whose answer gives the word, teacher-forced.

    Args:
        p: the parameters, see the head of this file.
        x: embedded source words, S x M.
        y_words: the numbers of y_0 .. y_{T-1}.
        source_hops: the number of hops over the source, one or more.
        target_hops: the number of hops over the target, one or more.

    Returns:
        Logits of y_1 .. y_T, T x K, the source's weights, T x source_hops x S, and a list of the target's weights at
        the steps i = 1 .. T, target_hops x i.
    """
    encoder_states, _ = stacked_bidirectional_lstm(x, p["encoder"])
    source = encoder_states[-1]  # S x H

    logits, source_weights, target_weights = [], [], []
    for i in range(1, len(y_words) + 1):
        u, on_source, on_target = answer(p, p["query"], source, y_words[:i], source_hops, target_hops)
        logits.append(p["W"] @ u)
        source_weights.append(on_source)
        target_weights.append(on_target)
    return torch.stack(logits), torch.stack(source_weights), target_weights
