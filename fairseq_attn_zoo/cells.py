"""The decoders' recurrent cells, in PyTorch alone.

Each splits its input in two. The part that is known before the loop over target words starts (embeddings, a fixed context)
is projected for all words at once by :meth:`project_input`. The rest is added once per word by :meth:`forward`.
A cell's state is a tuple whose first tensor is the hidden state.
"""

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

CellState = tuple[Tensor, ...]


class ConditionalGRUCell(nn.Module):
    r"""The gated unit of RNNsearch, conditioned on a context.

    Bahdanau, Cho and Bengio (2015), Appendix A.1.1 (A.2.2 with the context). The reset gate is applied before U, where
    ``nn.GRUCell`` applies it after:

    .. math::
        r_i = \sigma(W_r x_i + U_r s_{i-1} + C_r c_i) \qquad z_i = \sigma(W_z x_i + U_z s_{i-1} + C_z c_i) \\
        \tilde s_i = \tanh(W x_i + U [r_i \circ s_{i-1}] + C c_i) \qquad
        s_i = (1 - z_i) \circ s_{i-1} + z_i \circ \tilde s_i

    Args:
        input_size: width of x_i, which is E y_{i-1} in the first layer
        context_size: width of c_i; 0 for a layer that reads no context
        hidden_size: n
    """

    def __init__(self, input_size: int, context_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        # Rows stand in the order reset, update, candidate.
        self.input_projection = nn.Linear(input_size, 3 * hidden_size, bias=False)  # W_r, W_z, W
        self.context_projection = nn.Linear(context_size, 3 * hidden_size, bias=False) if context_size else None  # C's
        self.gate_recurrence = nn.Linear(hidden_size, 2 * hidden_size, bias=False)  # U_r, U_z
        self.candidate_recurrence = nn.Linear(hidden_size, hidden_size, bias=False)  # U
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The paper's appendix: the recurrent matrices orthogonal, everything else from N(0, 0.01^2)."""
        for recurrent in (*self.gate_recurrence.weight.chunk(2), self.candidate_recurrence.weight):
            nn.init.orthogonal_(recurrent)
        nn.init.normal_(self.input_projection.weight, std=0.01)
        if self.context_projection is not None:
            nn.init.normal_(self.context_projection.weight, std=0.01)

    def project_input(self, inputs: Tensor) -> Tensor:
        """What the gates read of the inputs, ... x E: ... x 3n."""
        return self.input_projection(inputs)

    def project_context(self, context: Tensor) -> Tensor:
        """What the gates read of a context that is known beforehand, ... x C: ... x 3n."""
        assert self.context_projection is not None
        return self.context_projection(context)

    def forward(self, projected: Tensor, context: Tensor | None, state: CellState) -> CellState:
        """One word.

        Args:
            projected: what :meth:`project_input` gave for this word, N x 3n
            context: N x C, or None when there is none or when it is in ``projected`` already
            state: (s_{i-1},), N x n
        """
        (previous,) = state
        if context is not None:
            assert self.context_projection is not None
            projected = torch.addmm(projected, context, self.context_projection.weight.t())
        gates, candidate = projected.split([2 * self.hidden_size, self.hidden_size], dim=1)
        gates = torch.addmm(gates, previous, self.gate_recurrence.weight.t()).sigmoid()
        reset, update = gates.chunk(2, dim=1)
        candidate = torch.addmm(candidate, reset * previous, self.candidate_recurrence.weight.t()).tanh()
        return (torch.lerp(previous, candidate, update),)  # (1 - z) * s + z * s~


class ConditionalLSTMCell(nn.RNNCellBase):
    """``nn.LSTMCell`` over [x ; c], with its parameters: x is projected beforehand, c arrives word by word.

    Args:
        input_size: width of x
        context_size: width of c (a context, or an attentional vector that is fed back); 0 if there is none
        hidden_size: H
    """

    def __init__(self, input_size: int, context_size: int, hidden_size: int) -> None:
        super().__init__(input_size + context_size, hidden_size, bias=True, num_chunks=4)
        self.known_size = input_size

    def project_input(self, inputs: Tensor) -> Tensor:
        """What the gates read of the inputs, ... x E, and of the biases: ... x 4H."""
        return nn.functional.linear(inputs, self.weight_ih[:, : self.known_size], self.bias_ih + self.bias_hh)

    def forward(self, projected: Tensor, context: Tensor | None, state: CellState) -> CellState:
        """One word.

        Args:
            projected: what :meth:`project_input` gave for this word, N x 4H
            context: N x C, or None when there is none or when it is in ``projected`` already
            state: (h, c), each N x H
        """
        hidden, cell = state
        if context is not None:
            projected = torch.addmm(projected, context, self.weight_ih[:, self.known_size :].t())
        gates = torch.addmm(projected, hidden, self.weight_hh.t())
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=1)
        cell = torch.addcmul(forget_gate.sigmoid() * cell, input_gate.sigmoid(), candidate.tanh())
        return output_gate.sigmoid() * cell.tanh(), cell


Cell = ConditionalGRUCell | ConditionalLSTMCell


class CellStack(nn.ModuleList):
    """Layers of cells, of which only the bottom one reads the context.

    Args:
        cell: class of the cells
        input_size, context_size, hidden_size: of the bottom cell; the others read the hidden state below them
        num_layers: how many
    """

    def __init__(
        self,
        cell: type[ConditionalGRUCell] | type[ConditionalLSTMCell],
        input_size: int,
        context_size: int,
        hidden_size: int,
        num_layers: int,
    ) -> None:
        bottom = cell(input_size, context_size, hidden_size)
        super().__init__([bottom, *(cell(hidden_size, 0, hidden_size) for _ in range(num_layers - 1))])

    def project_input(self, inputs: Tensor) -> Tensor:
        """The bottom cell's ``project_input``."""
        return cast(Cell, self[0]).project_input(inputs)

    def project_context(self, context: Tensor) -> Tensor:
        """The bottom cell's ``project_context``, of gated units."""
        return cast(ConditionalGRUCell, self[0]).project_context(context)

    def forward(
        self, projected: Tensor, context: Tensor | None, layers: tuple[CellState, ...], dropout: nn.Module
    ) -> tuple[CellState, ...]:
        """One word through all layers.

        Args:
            projected: what :meth:`project_input` gave for the word
            context: what else the bottom cell reads, N x C
            layers: the cells' states before the word, bottom layer first
            dropout: applied to what each layer passes to the next

        Returns:
            the cells' states after the word
        """
        states: list[CellState] = []
        for cell, state in zip(cast(Iterable[Cell], self), layers, strict=True):
            if states:
                projected, context = cell.project_input(dropout(states[-1][0])), None
            states.append(cell(projected, context, state))
        return tuple(states)
