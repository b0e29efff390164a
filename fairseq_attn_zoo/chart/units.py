"""The deduction units: parameters, and the way from states to a chart."""

import torch
from torch import Tensor, nn

from ..dropout import random_mask
from .candidates import Weights
from .cells import Chart, chart_padding, number_of_cells
from .fill import FillChart, FillOptions
from .memory_check import check_memory


class DeductionUnits(nn.Module):
    """The deduction units' four convolutions, and the chart that they fill.

    Args:
        size: d
        dropout: on each computed cell, once: every later use sees the same mask
        relu_after_sum: apply a ReLU to the sum of CNN3 and CNN4 too. A candidate's score is then no longer linear behind
            CNN3. So every candidate is computed in full, which takes O(S^3) matrix products (the memory stays O(S^2 d)).

    Raises:
        ValueError: if d is odd
    """

    def __init__(self, size: int, dropout: float = 0.0, relu_after_sum: bool = False) -> None:
        if size % 2:
            raise ValueError(f"the deduction unit halves its states, but their size, {size}, is odd; make it even")
        super().__init__()
        self.dropout = dropout
        self.relu_after_sum = relu_after_sum
        half = size // 2
        self.cnn1 = nn.Linear(size, half)  # 1x1
        self.cnn2_left = nn.Linear(half, half)  # 1x2: its two columns, and its bias
        self.cnn2_right = nn.Linear(half, half, bias=False)
        self.cnn3 = nn.Linear(half, size)  # 1x1
        self.cnn4_left = nn.Linear(size, size)  # 1x2
        self.cnn4_right = nn.Linear(size, size, bias=False)

    def weights(self) -> Weights:
        """The parameters, by the paper's names."""
        return Weights(
            w1=self.cnn1.weight,
            b1=self.cnn1.bias,
            w2_left=self.cnn2_left.weight,
            w2_right=self.cnn2_right.weight,
            b2=self.cnn2_left.bias,
            w3=self.cnn3.weight,
            b3=self.cnn3.bias,
            w4_left=self.cnn4_left.weight,
            w4_right=self.cnn4_right.weight,
            b4=self.cnn4_left.bias,
        )

    def forward(self, states: Tensor, padding_mask: Tensor) -> Chart:
        """Fill the charts of a batch of sentences.

        Args:
            states: h_1 .. h_S of the words, B x S x d, right-padded
            padding_mask: B x S, True at padding

        Raises:
            ValueError: if the charts would not fit into the memory that is free; nothing was allocated then
        """
        check_memory(states)
        dropout_mask, scale = None, 1.0
        if self.training and self.dropout:
            batch, positions, size = states.shape
            computed = (number_of_cells(positions) - positions) * batch
            dropout_mask, scale = random_mask((computed, size), self.dropout, states.device)
        outside = chart_padding(padding_mask)
        # Asked here for the backward pass: inside of an autograd function gradients are always off.
        options = FillOptions(outside, dropout_mask, scale, self.relu_after_sum, torch.is_grad_enabled())
        # Under autocast too the charts are filled in the precision of their weights.
        with torch.autocast(states.device.type, enabled=False):
            cells, splits = FillChart.apply(options, states.to(self.cnn1.weight.dtype), *self.weights())
        return Chart(cells, splits, outside)
