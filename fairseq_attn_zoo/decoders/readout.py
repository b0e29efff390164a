"""From states and contexts to the features that the output layer reads."""

import torch
from torch import Tensor, nn


def maxout(pairs: Tensor) -> Tensor:
    """The larger of neighbours 2j - 1 and 2j (Goodfellow et al. 2013): ... x 2l as ... x l.

    Raises:
        ValueError: if the last dimension is odd
    """
    if pairs.size(-1) % 2:
        raise ValueError(f"maxout takes neighbours in pairs, but {pairs.size(-1)} is odd; make the size even")
    return pairs.unflatten(-1, (-1, 2)).amax(dim=-1)


class MaxoutReadout(nn.Module):
    """t_i = maxout(U_o s_{i-1} + V_o E y_{i-1} + C_o c_i) (Bahdanau 2015, Appendix A.2.2), for all words at once.

    Args:
        output_size: l, the width of t_i
    """

    def __init__(self, hidden_size: int, embed_size: int, context_size: int, output_size: int) -> None:
        super().__init__()
        self.output_size = output_size
        self.hidden_projection = nn.Linear(hidden_size, 2 * output_size, bias=False)  # U_o
        self.embed_projection = nn.Linear(embed_size, 2 * output_size, bias=False)  # V_o
        self.context_projection = nn.Linear(context_size, 2 * output_size, bias=False)  # C_o
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.01)

    def forward(self, previous: Tensor, embedded: Tensor, projected_context: Tensor) -> Tensor:
        """Read out.

        Args:
            previous: s_{i-1}, N x T x n
            embedded: E y_{i-1}, N x T x E
            projected_context: C_o c_i, N x T x 2l, or N x 1 x 2l when all words have one context

        Returns:
            N x T x l
        """
        return maxout(self.hidden_projection(previous) + self.embed_projection(embedded) + projected_context)


class AttentionalLayer(nn.Module):
    """a_t = tanh(W_c [c_t ; h_t]) (Luong 2015), or with the state before the context, tanh(W_c [h_t ; c_t]).

    Args:
        state_first: the order of the two, which is the order of W_c's columns
    """

    def __init__(self, context_size: int, hidden_size: int, state_first: bool = False) -> None:
        super().__init__()
        self.state_first = state_first
        self.projection = nn.Linear(context_size + hidden_size, hidden_size, bias=False)
        nn.init.uniform_(self.projection.weight, -0.1, 0.1)

    def forward(self, context: Tensor, hidden: Tensor) -> Tensor:
        """... x C and ... x H as ... x H."""
        parts = [hidden, context] if self.state_first else [context, hidden]
        return torch.tanh(self.projection(torch.cat(parts, dim=-1)))
