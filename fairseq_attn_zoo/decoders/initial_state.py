"""Where a decoder starts: the state before the first target word, from what the encoder ended in."""

import torch
from torch import Tensor, nn

from ..encoders import EncoderOutput, join_directions
from .base import DecoderState


class TanhInitialState(nn.Module):
    """s_0 = tanh(W_s b), b the state that the encoder's last direction ended in: one map per layer.

    For a bidirectional encoder b is the backward state at the first source word (Bahdanau 2015, Appendix A.2.2); for a
    forward encoder it is the last state. Where the encoder is an LSTM the decoder is one too, and its cells start at
    zero.
    """

    def __init__(self, source_size: int, hidden_size: int, num_layers: int) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(source_size, hidden_size, bias=False) for _ in range(num_layers))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.01)

    def forward(self, encoded: EncoderOutput) -> DecoderState:
        last_direction = encoded.final_hidden[:, -1]  # L x B x units
        hidden = [torch.tanh(project(last)) for project, last in zip(self.projections, last_direction, strict=True)]
        if encoded.final_cell is None:
            return DecoderState(tuple((state,) for state in hidden))
        return DecoderState(tuple((state, torch.zeros_like(state)) for state in hidden))


def joined_initial_state(encoded: EncoderOutput) -> DecoderState:
    """Each layer starts from [forward_S ; backward_1] of the encoder's same layer, hidden state and cell."""
    assert encoded.final_cell is not None
    hidden, cell = join_directions(encoded.final_hidden), join_directions(encoded.final_cell)  # L x B x H
    return DecoderState(tuple(zip(hidden, cell, strict=True)))


def reverse_initial_state(encoded: EncoderOutput) -> DecoderState:
    """Each layer starts from the reverse direction's same layer at the first word, hidden state and cell.

    Watanabe et al. (2017), Section 2.
    """
    assert encoded.final_cell is not None
    return DecoderState(tuple(zip(encoded.final_hidden[:, 1], encoded.final_cell[:, 1], strict=True)))


class LastStateMap(nn.Module):
    """d_0 = W_0 h_M, h_M the merged source state of the last word: one map per layer; cells start at zero.

    Mino et al. (2017), Section 3.1: "d_1 is set to a matrix of an affine transformation of the last hidden state h_M".
    """

    def __init__(self, merged_size: int, hidden_size: int, num_layers: int) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(merged_size, hidden_size, bias=False) for _ in range(num_layers))

    def forward(self, last: Tensor) -> DecoderState:
        """h_M, B x K, as the state before the first word."""
        hidden = [project(last) for project in self.projections]
        return DecoderState(tuple((state, torch.zeros_like(state)) for state in hidden))
