"""Recurrent encoders, in PyTorch alone.

Sources are right-padded here: word j of every sentence stands at position j - 1. (fairseq's left padding is undone, and
redone for the weights, where fairseq comes in: :mod:`fairseq_attn_zoo.models.base`.)
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class EncoderOutput(NamedTuple):
    """The states of the sources and what each layer ended in."""

    states: Tensor  # B x S x C, C = units x directions: the top layer's, [forward ; backward]
    final_hidden: Tensor  # L x directions x B x units: forward at the last word, backward at the first
    final_cell: Tensor | None  # the same of an LSTM's cells; None for a GRU


class RecurrentEncoder(nn.Module):
    """A GRU or an LSTM over embedded sources, in one direction or two; PyTorch's own cells.

    Args:
        cell: ``"gru"`` or ``"lstm"``
        input_size: E, width of the embeddings
        hidden_size: units of one direction
        num_layers: L; layer l > 1 reads both directions of layer l - 1
        bidirectional: whether a second direction reads from the last word to the first
        dropout: probability of dropping a layer's outputs (not its recurrence, nor the final states)
    """

    def __init__(
        self,
        cell: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bidirectional: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.directions = 2 if bidirectional else 1
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.output_size = hidden_size * self.directions
        self.rnn = {"gru": nn.GRU, "lstm": nn.LSTM}[cell](
            input_size,
            hidden_size,
            num_layers,
            batch_first=True,
            bidirectional=bidirectional,
            dropout=dropout if num_layers > 1 else 0.0,
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, embedded: Tensor, padding_mask: Tensor) -> EncoderOutput:
        """Encode.

        Args:
            embedded: B x S x E, right-padded
            padding_mask: B x S, True at padding
        """
        # A sentence of nothing but padding (a dummy batch) is read as one word: PyTorch refuses a length of 0.
        lengths = (~padding_mask).sum(dim=1).clamp(min=1).cpu()
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        packed_states, final = self.rnn(packed)
        states, _ = pad_packed_sequence(packed_states, batch_first=True, total_length=embedded.size(1))
        hidden, cell = final if isinstance(final, tuple) else (final, None)
        return EncoderOutput(
            self.dropout(states), self.split_directions(hidden), None if cell is None else self.split_directions(cell)
        )

    def split_directions(self, final: Tensor) -> Tensor:
        """PyTorch's (L x directions) x B x units as L x directions x B x units."""
        return final.view(self.num_layers, self.directions, -1, self.hidden_size)


def join_directions(final: Tensor) -> Tensor:
    """Final states L x directions x B x units as L x B x C: [forward at the last word ; backward at the first]."""
    return torch.cat(final.unbind(dim=1), dim=-1)
