r"""CKY-based convolutional attention, and the attention it is compared with, for one sentence.

Watanabe, Tamura and Ninomiya, "CKY-based Convolutional Attention for Neural Machine Translation", IJCNLP 2017
(https://aclanthology.org/I17-2001), Sections 2 and 3.

    fwd^1_i = LSTM^1(v_i),  fwd^2_i = LSTM^2(fwd^1_i) + fwd^1_i     Eq. 1, 3, from left to right
    bwd^1_i = LSTM^1(v_i),  bwd^2_i = LSTM^2(bwd^1_i) + bwd^1_i     Eq. 2, 4, from right to left, LSTMs of its own
    h_i     = fwd^2_i + bwd^2_i                                     Eq. 5
    s^l_0   = state of the encoder's right-to-left LSTM^l at the first word, without the residual; the cell likewise
    s^1_j   = LSTM^1([w_{j-1} ; s^_{j-1}]),  s^_0 = 0               Eq. 6
    s^2_j   = LSTM^2(s^1_j)                                         Eq. 7
    alpha_j(i) = exp(h_i . s^2_j) / sum_k exp(h_k . s^2_j)          Eq. 8
    c_j     = sum_i alpha_j(i) h_i                                  Eq. 9
    s^_j    = tanh(W_c [s^2_j ; c_j])                               Eq. 10
    p(y_j)  = softmax(W_s s^_j)                                     Eq. 11; W_s s^_j is returned

The chart has one vector h_{i,j} for every i words from the j-th on, 1 <= i <= S and 1 <= j <= S - i + 1:

    h_{1,j} = h_j
    h_{i,j} = Max_{1 <= k <= i-1} DU(h_{k,j}, h_{i-k,j+k})          Eq. 12
    DU(l, r) = CNN3(f(CNN2(f(CNN1 l), f(CNN1 r)))) + CNN4(l, r)     f = ReLU; with relu_after_sum, f of this sum

CNN1 and CNN3 are 1x1 convolutions, hence linear maps with a bias; CNN2 and CNN4 are 1x2 convolutions, hence one linear
map for l, one for r, and a bias. Max is the vector whose elements sum highest, of equal ones that of the smallest k; it
is taken as a whole, not element by element. Every DU of every cell is evaluated in full.

With the chart (cky_attention), s^_j is made of two contexts, c_j of Eq. 9 and c'_j:

    Z_j     = sum_k exp(h_k . s^2_j) + sum_{k,l} exp(h_{k,l} . s^2_j)
    alpha'(i, j) = exp(h_i . s^2_j) / Z_j                           Eq. 13
    alpha''(i_1, i_2, j) = exp(h_{i_1,i_2} . s^2_j) / Z_j           Eq. 14
    c'_j    = sum_k alpha'(k, j) h_k + sum_{k,l} alpha''(k, l, j) h_{k,l}       Eq. 15
    s^_j    = tanh(W^ [s^2_j ; c_j ; c'_j])                         Eq. 16

Sums over k, l are over the whole chart, 1 <= k <= S and 1 <= l <= S - k + 1, so that each word stands twice in Z_j and
in c'_j: as h_l and as h_{1,l}.

With more layers (an extension, not in the paper) layer l >= 3 of either side is made as layer 2 is, and the top layers
give h_i and stand in the place of s^2_j.

Shapes: S source words, T target words, M values an embedding, d values a state of one encoder direction, h_i, h_{i,j},
a decoder state and s^_j, K target words.

    p["forward"], p["backward"]         lists over layers of LSTM cells, see ``recurrent``: weight_ih is 4d x M in the
                                        first layer, 4d x d in the others
    p["decoder"]   list over as many layers of LSTM cells: weight_ih is 4d x (M + d) in the first layer, 4d x d in the
                   others
    p["cnn1"]      {"weight": d/2 x d, "bias": d/2} (cky_attention; the other CNNs too)
    p["cnn2"]      {"left": d/2 x d/2, "right": d/2 x d/2, "bias": d/2}
    p["cnn3"]      {"weight": d x d/2, "bias": d}
    p["cnn4"]      {"left": d x d, "right": d x d, "bias": d}
    p["W_c"]       d x 2d (baseline)
    p["W_hat"]     d x 3d, W^ (cky_attention)
    p["W_s"]       K x d
"""

from typing import Any

import torch
from torch import Tensor

from .recurrent import Cell, HiddenAndCell, lstm, lstm_step, reverse

Position = tuple[int, int]  # (i, j) of a cell of the chart, counted from 1: i words from the j-th on


def residual_stack(x: Tensor, layers: list[Cell]) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """A stack of left-to-right LSTMs over x, S x M, with a residual connection around every layer but the first.

    Returns:
        Outputs of the top layer, S x d, and a list over layers of the LSTM's own h and c, S x d each.
    """
    own = [lstm(x, **layers[0])]
    out = own[0][0]  # S x d
    for layer in layers[1:]:
        h, c = lstm(out, **layer)  # S x d, S x d
        own.append((h, c))
        out = h + out
    return out, own


def encode(p: dict[str, Any], x: Tensor) -> tuple[Tensor, list[HiddenAndCell]]:
    """h_1 .. h_S, S x d, for words x, S x M, and the decoder's first (h, c) of every layer, d each."""
    fwd, _ = residual_stack(x, p["forward"])  # S x d
    out, own = residual_stack(reverse(x), p["backward"])
    bwd = reverse(out)  # S x d
    h = torch.stack([fwd_i + bwd_i for fwd_i, bwd_i in zip(fwd, bwd, strict=True)])  # S x d
    # The right-to-left LSTMs read the first word last.
    return h, [(own_h[-1], own_c[-1]) for own_h, own_c in own]


def decoder_step(
    p: dict[str, Any], w: Tensor, s_hat: Tensor, states: list[HiddenAndCell]
) -> tuple[Tensor, list[HiddenAndCell]]:
    """s_j of the top layer (d), and (h, c) of every layer, from w_{j-1} (M), s^_{j-1} (d) and every layer's (h, c)."""
    below = torch.cat([w, s_hat])  # M + d
    following = []
    for cell, (h, c) in zip(p["decoder"], states, strict=True):
        h, c = lstm_step(below, h, c, **cell)
        following.append((h, c))
        below = h
    return below, following


def deduction_unit(p: dict[str, Any], left: Tensor, right: Tensor, relu_after_sum: bool) -> Tensor:
    """DU(l, r), d values, of two cells of the chart, d values each."""
    cnn1, cnn2, cnn3, cnn4 = p["cnn1"], p["cnn2"], p["cnn3"], p["cnn4"]
    narrow_left = torch.relu(cnn1["weight"] @ left + cnn1["bias"])  # d/2
    narrow_right = torch.relu(cnn1["weight"] @ right + cnn1["bias"])  # d/2
    narrow = torch.relu(cnn2["left"] @ narrow_left + cnn2["right"] @ narrow_right + cnn2["bias"])  # d/2
    wide = cnn3["weight"] @ narrow + cnn3["bias"]  # d
    shortcut = cnn4["left"] @ left + cnn4["right"] @ right + cnn4["bias"]  # d
    total = wide + shortcut  # d
    return torch.relu(total) if relu_after_sum else total


def chart(
    p: dict[str, Any], h: Tensor, relu_after_sum: bool = False
) -> tuple[dict[Position, Tensor], dict[Position, int]]:
    """The chart of one sentence, every deduction unit evaluated in full.

    Args:
        p: the parameters, see the head of this file; only the CNNs are read.
        h: the words' states h_1 .. h_S, S x d.
        relu_after_sum: whether a deduction unit ends in a ReLU.

    Returns:
        h_{i,j}, d values each, of all (i, j), and the winning k of all (i, j) with i >= 2.
    """
    S = h.shape[0]
    cells, splits = {}, {}
    for j in range(1, S + 1):
        cells[1, j] = h[j - 1]
    for i in range(2, S + 1):
        for j in range(1, S - i + 2):
            candidates = [
                deduction_unit(p, cells[k, j], cells[i - k, j + k], relu_after_sum) for k in range(1, i)
            ]  # d each; that of k is number k - 1
            winner = 1
            for k in range(2, i):
                if candidates[k - 1].sum() > candidates[winner - 1].sum():
                    winner = k
            cells[i, j] = candidates[winner - 1]
            splits[i, j] = winner
    return cells, splits


def tree(splits: dict[Position, int], words: list[str]) -> str:
    """The whole sentence bracketed along the winning splits, as "((a b) c)"; one word is that word."""

    def bracket(i: int, j: int) -> str:
        if i == 1:
            return words[j - 1]
        k = splits[i, j]
        return f"({bracket(k, j)} {bracket(i - k, j + k)})"

    return bracket(len(words), 1)


def attend(s: Tensor, h: Tensor) -> tuple[list[Tensor], Tensor]:
    """Weights alpha_j(1) .. alpha_j(S) (scalars) of h, S x d, for a decoder state s, d, and c_j, d: Eq. 8 and 9."""
    exponentials = [torch.exp(h_i @ s) for h_i in h]
    total = exponentials[0]
    for exponential in exponentials[1:]:
        total = total + exponential
    alpha = [exponential / total for exponential in exponentials]
    c = h.new_zeros(h.shape[1])  # d
    for alpha_i, h_i in zip(alpha, h, strict=True):
        c = c + alpha_i * h_i
    return alpha, c


def attend_with_chart(
    s: Tensor, h: Tensor, cells: dict[Position, Tensor]
) -> tuple[list[Tensor], dict[Position, Tensor], Tensor]:
    """Attention to the words and to all cells of the chart in one softmax: Eq. 13, 14 and 15.

    Args:
        s: the decoder's state, d.
        h: the words' states h_1 .. h_S, S x d.
        cells: h_{i,j} of all (i, j), d each.

    Returns:
        alpha'(1, j) .. alpha'(S, j) (scalars), alpha''(i_1, i_2, j) (scalars) of all (i_1, i_2), and c'_j, d.
    """
    of_words = [torch.exp(h_i @ s) for h_i in h]
    of_cells = {position: torch.exp(cell @ s) for position, cell in cells.items()}
    total = of_words[0]
    for exponential in of_words[1:]:
        total = total + exponential
    for exponential in of_cells.values():
        total = total + exponential
    alpha1 = [exponential / total for exponential in of_words]
    alpha2 = {position: exponential / total for position, exponential in of_cells.items()}
    c = h.new_zeros(h.shape[1])  # d
    for weight, h_i in zip(alpha1, h, strict=True):
        c = c + weight * h_i
    for position, weight in alpha2.items():
        c = c + weight * cells[position]
    return alpha1, alpha2, c


def baseline(p: dict[str, Any], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Attention to the words alone, teacher-forced.

    Args:
        p: the parameters, see the head of this file.
        x: embedded source words, S x M.
        y: embedded y_0 .. y_{T-1}, T x M.

    Returns:
        Logits of y_1 .. y_T, T x K, and the weights alpha_j(i), T x S.
    """
    h, states = encode(p, x)  # S x d, (d, d) a layer
    s_hat = h.new_zeros(p["W_c"].shape[0])  # d

    logits, weights = [], []
    for y_previous in y:
        s, states = decoder_step(p, y_previous, s_hat, states)
        alpha, c = attend(s, h)
        s_hat = torch.tanh(p["W_c"] @ torch.cat([s, c]))  # d
        logits.append(p["W_s"] @ s_hat)
        weights.append(torch.stack(alpha))
    return torch.stack(logits), torch.stack(weights)


def cky_attention(
    p: dict[str, Any], x: Tensor, y: Tensor, relu_after_sum: bool = False
) -> tuple[Tensor, Tensor, Tensor, list[dict[Position, Tensor]], dict[Position, int]]:
    """Attention to the words and to the chart, teacher-forced.

    Args:
        p: the parameters, see the head of this file.
        x: embedded source words, S x M.
        y: embedded y_0 .. y_{T-1}, T x M.
        relu_after_sum: whether a deduction unit ends in a ReLU.

    Returns:
        Logits of y_1 .. y_T, T x K, the weights alpha_j(i), T x S, the weights alpha'(i, j), T x S, a list over the T
        steps of the weights alpha''(i_1, i_2, j) (scalars) of all (i_1, i_2), and the winning k of all (i, j) with
        i >= 2.
    """
    h, states = encode(p, x)  # S x d, (d, d) a layer
    cells, splits = chart(p, h, relu_after_sum)
    s_hat = h.new_zeros(p["W_hat"].shape[0])  # d

    logits, weights, on_words, on_cells = [], [], [], []
    for y_previous in y:
        s, states = decoder_step(p, y_previous, s_hat, states)
        alpha, c = attend(s, h)
        alpha1, alpha2, c_chart = attend_with_chart(s, h, cells)
        s_hat = torch.tanh(p["W_hat"] @ torch.cat([s, c, c_chart]))  # d
        logits.append(p["W_s"] @ s_hat)
        weights.append(torch.stack(alpha))
        on_words.append(torch.stack(alpha1))
        on_cells.append(alpha2)
    return torch.stack(logits), torch.stack(weights), torch.stack(on_words), on_cells, splits
