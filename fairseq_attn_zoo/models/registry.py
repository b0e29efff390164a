"""The card of an architecture: what differs between architectures, said once, where each is registered.

Whoever wants to know something of an architecture asks ``ARCHITECTURES[name].card``: the model's checks and its initial
values, the sizes that make it N wide, the tables of the README, the recipes, the tests.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fairseq.models import register_model

from ..initial_values import InitialValues
from .config import RecurrentConfig
from .widths import FREE, Widths

if TYPE_CHECKING:
    from .base import RecurrentModel

# Name of every architecture of the package -> its model class; the tests walk through it.
ARCHITECTURES: dict[str, type["RecurrentModel"]] = {}


class Paper(NamedTuple):
    """Where an architecture comes from."""

    authors: str
    year: int
    title: str
    link: str | None = None


# A fact that may depend on an architecture's flags.
Fact = Callable[[Any], bool]


def always(config: Any) -> bool:
    return True


def never(config: Any) -> bool:
    return False


def any_flags_go_together(config: Any) -> None:
    """Beyond what their fields may be, and the encoder's width and depth."""


@dataclass(frozen=True)
class Card:
    """What is particular to one architecture; :func:`dataclasses.replace` makes a sibling's card of it."""

    name: str
    config: type[RecurrentConfig]  # its flags, with their defaults, help and what values they may have
    paper: Paper
    summary: str  # one line for users
    initial_values: InitialValues
    widths: Widths = FREE
    has_attention: bool = True
    starts_layer_by_layer: Fact = always  # each layer of the decoder starts from a layer of the encoder
    embeds_target: Fact = always  # the decoder network reads embedded target words
    has_output_bias: Fact = never  # where the paper prints one
    check: Callable[[Any], None] = any_flags_go_together  # or else a ValueError of one line


def register_architecture(card: Card):
    """fairseq's ``register_model`` with the card's config, and an entry in :data:`ARCHITECTURES`."""

    def register(model: type["RecurrentModel"]) -> type["RecurrentModel"]:
        model.card = card
        ARCHITECTURES[card.name] = model
        return register_model(card.name, dataclass=card.config)(model)

    return register
