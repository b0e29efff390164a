r"""GRU and LSTM written out, for one sentence without batch or padding, in PyTorch's parametrisation.

GRU (the documentation of ``torch.nn.GRU``), rows of the weights in the order r, z, n:

    r_t = sigmoid(W_ir x_t + b_ir + W_hr h_{t-1} + b_hr)
    z_t = sigmoid(W_iz x_t + b_iz + W_hz h_{t-1} + b_hz)
    n_t = tanh(W_in x_t + b_in + r_t * (W_hn h_{t-1} + b_hn))          the reset gate is applied after W_hn
    h_t = (1 - z_t) * n_t + z_t * h_{t-1}

LSTM (the documentation of ``torch.nn.LSTM``), rows of the weights in the order i, f, g, o:

    i_t = sigmoid(W_ii x_t + b_ii + W_hi h_{t-1} + b_hi)               f_t and o_t likewise
    g_t = tanh(W_ig x_t + b_ig + W_hg h_{t-1} + b_hg)
    c_t = f_t * c_{t-1} + i_t * g_t
    h_t = o_t * tanh(c_t)

States start at zero. Shapes: S words, D values a word, H values a state, G = 3 (GRU) or 4 (LSTM).

A *cell* is a dict of ``weight_ih`` (GH x D), ``weight_hh`` (GH x H), ``bias_ih`` and ``bias_hh`` (GH). A *layer* is a
dict of the cells ``forward`` and ``backward``. Layer l >= 2 reads both directions of layer l - 1, so there D = 2H.
"""

import torch
from torch import Tensor

Cell = dict[str, Tensor]
Layer = dict[str, Cell]
HiddenAndCell = tuple[Tensor, Tensor]


def gru_step(x: Tensor, h: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor, bias_hh: Tensor) -> Tensor:
    """One step of ``torch.nn.GRU``: from x_t (D) and h_{t-1} (H) to h_t (H)."""
    size = h.shape[0]
    from_x = weight_ih @ x + bias_ih  # 3H
    from_h = weight_hh @ h + bias_hh  # 3H
    r = torch.sigmoid(from_x[:size] + from_h[:size])  # H
    z = torch.sigmoid(from_x[size : 2 * size] + from_h[size : 2 * size])  # H
    n = torch.tanh(from_x[2 * size :] + r * from_h[2 * size :])  # H
    return (1 - z) * n + z * h


def lstm_step(
    x: Tensor, h: Tensor, c: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor, bias_hh: Tensor
) -> HiddenAndCell:
    """One step of ``torch.nn.LSTM``: from x_t (D), h_{t-1} (H) and c_{t-1} (H) to h_t and c_t (H each)."""
    size = h.shape[0]
    gates = weight_ih @ x + bias_ih + weight_hh @ h + bias_hh  # 4H
    i = torch.sigmoid(gates[:size])  # H
    f = torch.sigmoid(gates[size : 2 * size])  # H
    g = torch.tanh(gates[2 * size : 3 * size])  # H
    o = torch.sigmoid(gates[3 * size :])  # H
    c = f * c + i * g
    return o * torch.tanh(c), c


def gru(x: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor, bias_hh: Tensor) -> Tensor:
    """States of one direction from left to right, S x H, for words x, S x D. The final state is the last row."""
    h = x.new_zeros(weight_hh.shape[1])  # H
    states = []
    for x_t in x:
        h = gru_step(x_t, h, weight_ih, weight_hh, bias_ih, bias_hh)
        states.append(h)
    return torch.stack(states)


def lstm(x: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor, bias_hh: Tensor) -> HiddenAndCell:
    """States h and cells c of one direction from left to right, S x H each, for words x, S x D."""
    h = x.new_zeros(weight_hh.shape[1])  # H
    c = x.new_zeros(weight_hh.shape[1])  # H
    states, cells = [], []
    for x_t in x:
        h, c = lstm_step(x_t, h, c, weight_ih, weight_hh, bias_ih, bias_hh)
        states.append(h)
        cells.append(c)
    return torch.stack(states), torch.stack(cells)


def reverse(rows: Tensor) -> Tensor:
    """The rows of an S x D tensor from last to first."""
    return torch.stack([rows[position] for position in reversed(range(rows.shape[0]))])


def bidirectional_gru(x: Tensor, layer: Layer) -> tuple[Tensor, dict[str, Tensor]]:
    """One bidirectional layer over x, S x D.

    Returns:
        [fwd_j ; bwd_j] at every position, S x 2H, and the final states {"forward": fwd_S, "backward": bwd_1}, H each.
    """
    fwd = gru(x, **layer["forward"])  # S x H
    bwd = reverse(gru(reverse(x), **layer["backward"]))  # S x H
    states = torch.stack([torch.cat([fwd[j], bwd[j]]) for j in range(x.shape[0])])  # S x 2H
    return states, {"forward": fwd[-1], "backward": bwd[0]}


def bidirectional_lstm(x: Tensor, layer: Layer) -> tuple[Tensor, dict[str, HiddenAndCell]]:
    """One bidirectional layer over x, S x D.

    Returns:
        [fwd_j ; bwd_j] at every position, S x 2H, and the final (h, c) of each direction, H each: ``forward`` at the
        last word, ``backward`` at the first.
    """
    fwd_h, fwd_c = lstm(x, **layer["forward"])  # S x H, S x H
    bwd_h, bwd_c = (reverse(rows) for rows in lstm(reverse(x), **layer["backward"]))  # S x H, S x H
    states = torch.stack([torch.cat([fwd_h[j], bwd_h[j]]) for j in range(x.shape[0])])  # S x 2H
    return states, {"forward": (fwd_h[-1], fwd_c[-1]), "backward": (bwd_h[0], bwd_c[0])}


def stacked_bidirectional_gru(x: Tensor, layers: list[Layer]) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """PyTorch's stacked bidirectional GRU over x, S x D: what ``bidirectional_gru`` returns, in lists over layers."""
    states, finals = [], []
    for layer in layers:
        x, final = bidirectional_gru(x, layer)
        states.append(x)
        finals.append(final)
    return states, finals


def stacked_bidirectional_lstm(x: Tensor, layers: list[Layer]) -> tuple[list[Tensor], list[dict[str, HiddenAndCell]]]:
    """PyTorch's stacked bidirectional LSTM over x, S x D: what ``bidirectional_lstm`` returns, in lists over layers."""
    states, finals = [], []
    for layer in layers:
        x, final = bidirectional_lstm(x, layer)
        states.append(x)
        finals.append(final)
    return states, finals


def stacked_forward_gru(x: Tensor, layers: list[Layer]) -> list[Tensor]:
    """States of a stack of left-to-right GRUs over x, S x D: a list over layers of S x H.

    Only ``forward`` of each layer is read; layer l >= 2 reads the H values of layer l - 1.
    """
    states = []
    for layer in layers:
        x = gru(x, **layer["forward"])
        states.append(x)
    return states
