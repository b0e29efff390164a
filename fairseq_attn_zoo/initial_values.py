"""Initial values, in PyTorch alone: a paper's rule says what every parameter of a model starts from.

A rule is a list of patterns of parameters' names; the first that fits decides. It fills a whole model at once, so that
nothing depends on what the constructors of its parts have put there before.
"""

from collections.abc import Callable
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

# Fills a parameter of a module.
Initializer = Callable[[Tensor, nn.Module], object]


class InitialValues:
    """A paper's rule.

    Args:
        patterns: shell pattern of a parameter's name in the model, such as ``"*.attention.*"`` -> what fills it; the first
            one that fits is taken
    """

    def __init__(self, patterns: dict[str, Initializer]) -> None:
        self.patterns = patterns

    def but(self, exceptions: dict[str, Initializer]) -> "InitialValues":
        """The same rule after these patterns."""
        return InitialValues({**exceptions, **self.patterns})

    def of(self, name: str) -> Initializer:
        """What fills the parameter of this name.

        Raises:
            LookupError: the rule says nothing of it
        """
        for pattern, initializer in self.patterns.items():
            if fnmatchcase(name, pattern):
                return initializer
        raise LookupError(f"the initial values say nothing of {name}")

    @torch.no_grad()
    def fill(self, model: nn.Module) -> None:
        """Fill every parameter, one that stands under two names once, by the first of them.

        Raises:
            LookupError: the rule says nothing of a parameter
        """
        filled: set[nn.Parameter] = set()
        for path, module in model.named_modules():
            for name, parameter in module.named_parameters(path, recurse=False):
                if parameter not in filled:
                    filled.add(parameter)
                    self.of(name)(parameter, module)


def zeros(values: Tensor, owner: nn.Module) -> None:
    nn.init.zeros_(values)


def constant(value: float) -> Initializer:
    return lambda values, owner: nn.init.constant_(values, value)


def uniform(largest: float) -> Initializer:
    """Uniform in [-largest, largest]."""
    return lambda values, owner: nn.init.uniform_(values, -largest, largest)


def normal(std: float) -> Initializer:
    """From N(0, std^2)."""
    return lambda values, owner: nn.init.normal_(values, std=std)


def orthogonal(values: Tensor, owner: nn.Module) -> None:
    """Square blocks under each other, one per gate, each of them orthogonal."""
    for block in values.split(values.size(1)):
        nn.init.orthogonal_(block)


def by_inputs(values: Tensor, owner: nn.Module) -> None:
    """Uniform in [-1 / sqrt(n), 1 / sqrt(n)] for a linear map of n inputs, weight and bias: PyTorch's own rule."""
    assert isinstance(owner, nn.Linear)
    bound = owner.in_features**-0.5
    nn.init.uniform_(values, -bound, bound)
