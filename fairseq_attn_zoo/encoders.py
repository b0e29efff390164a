"""Recurrent encoders, in PyTorch alone.

Sources are right-padded here: word j of every sentence stands at position j - 1. (fairseq's left padding is undone, and
redone for the weights, where fairseq comes in: :mod:`fairseq_attn_zoo.models.encoder`.)
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from .dropout import Dropout


class EncoderOutput(NamedTuple):
    """The states of the sources and what each layer ended in."""

    states: Tensor  # B x S x C: the top layer's, [forward ; backward], or their sum where the encoder says so
    final_hidden: Tensor  # L x directions x B x units: forward at the last word, backward at the first
    final_cell: Tensor | None  # the same of an LSTM's cells; None for a GRU
    states_before_dropout: Tensor  # B x S x C: the states, none dropped


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
        self.dropout = Dropout(dropout)

    def forward(self, embedded: Tensor, padding_mask: Tensor) -> EncoderOutput:
        """Encode.

        Args:
            embedded: B x S x E, right-padded
            padding_mask: B x S, True at padding
        """
        packed = pack_padded_sequence(embedded, lengths(padding_mask).cpu(), batch_first=True, enforce_sorted=False)
        packed_states, final = self.rnn(packed)
        states, _ = pad_packed_sequence(packed_states, batch_first=True, total_length=embedded.size(1))
        hidden, cell = final if isinstance(final, tuple) else (final, None)
        return EncoderOutput(
            self.dropout(states),
            self.split_directions(hidden),
            None if cell is None else self.split_directions(cell),
            states,
        )

    def split_directions(self, final: Tensor) -> Tensor:
        """PyTorch's (L x directions) x B x units as L x directions x B x units."""
        return final.view(self.num_layers, self.directions, -1, self.hidden_size)


class TwoStackEncoder(nn.Module):
    """Two stacks of LSTMs, one per direction, that never read each other (PyTorch's bidirectional LSTM mixes its layers).

    Mino et al. (2017), Eq. 1 and 2, where the two are concatenated and no layer is skipped; Watanabe et al. (2017),
    Eq. 1 to 5, where they are summed and every layer above the first adds its input to its output.

    Args:
        input_size: E, width of the embeddings
        hidden_size: units of one direction
        num_layers: L
        residual: add each upper layer's input to its output, and sum the directions
        dropout: probability of dropping the top layers' outputs (not a recurrence, nor the final states)
        dropout_between: probability of dropping what a lower layer passes up
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        residual: bool = False,
        dropout: float = 0.0,
        dropout_between: float = 0.0,
    ) -> None:
        super().__init__()
        self.residual = residual
        self.output_size = hidden_size if residual else 2 * hidden_size
        self.forward_stack, self.backward_stack = (
            nn.ModuleList(
                nn.LSTM(hidden_size if layer else input_size, hidden_size, batch_first=True)
                for layer in range(num_layers)
            )
            for _ in range(2)
        )
        self.dropout = Dropout(dropout)
        self.dropout_between = Dropout(dropout_between)

    def forward(self, embedded: Tensor, padding_mask: Tensor) -> EncoderOutput:
        """Encode; arguments as in :class:`RecurrentEncoder`. The final states are the LSTMs' own."""
        length = lengths(padding_mask)
        order = reversed_order(length, embedded.size(1))
        forward_states, forward_final = self.run(self.forward_stack, embedded, length)
        backward_states, backward_final = self.run(self.backward_stack, reorder_positions(embedded, order), length)
        directions = (forward_states, reorder_positions(backward_states, order))
        states = directions[0] + directions[1] if self.residual else torch.cat(directions, dim=-1)
        hidden, cell = (torch.stack(pair, dim=1) for pair in zip(forward_final, backward_final, strict=True))
        return EncoderOutput(self.dropout(states), hidden, cell, states)

    def run(self, stack: nn.ModuleList, embedded: Tensor, length: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The top layer's states, B x S x units, and each layer's last state and cell, L x B x units."""
        states = pack_padded_sequence(embedded, length.cpu(), batch_first=True, enforce_sorted=False)
        finals = []
        for number, layer in enumerate(stack):
            below = states._replace(data=self.dropout_between(states.data)) if number else states
            states, final = layer(below)
            if number and self.residual:
                states = states._replace(data=states.data + below.data)
            finals.append(final)
        padded, _ = pad_packed_sequence(states, batch_first=True, total_length=embedded.size(1))
        hidden, cell = (torch.cat(part) for part in zip(*finals, strict=True))
        return padded, (hidden, cell)


def lengths(padding_mask: Tensor) -> Tensor:
    """Words of each sentence, B. One of nothing but padding (a dummy batch) counts as one word, which RNNs need."""
    return (~padding_mask).sum(dim=1).clamp(min=1)


def reversed_order(length: Tensor, width: int) -> Tensor:
    """Positions that turn each right-padded sentence round and leave its padding where it is, B x S; its own inverse."""
    positions = torch.arange(width, device=length.device)
    mirrored = length.unsqueeze(1) - 1 - positions
    return torch.where(mirrored >= 0, mirrored, positions)


def reorder_positions(states: Tensor, order: Tensor) -> Tensor:
    """Position ``order[b, s]`` of sentence b at position s: B x S x C."""
    return states.gather(1, order.unsqueeze(2).expand_as(states))


def join_directions(final: Tensor) -> Tensor:
    """Final states L x directions x B x units as L x B x C: [forward at the last word ; backward at the first]."""
    return torch.cat(final.unbind(dim=1), dim=-1)
