"""The flags that every architecture has, and what any flag may be; a mechanism's own subclass adds only its own.

fairseq makes a command-line flag and a hydra field of each attribute. Three of its traps decide how these are written:
a bool whose default is True would become a flag that turns it off; a field named like a flag of fairseq's own
(``seed``, ``beam``, ``lr``) would silently take that flag's value, hence the prefixes; and annotations must be real
types, so that this file must not import ``annotations`` from ``__future__``.

A field is made by :func:`option` or, where it counts something, by :func:`number` and its kin. They write down what values
it may have; :func:`check_flags` refuses all others.
"""

from dataclasses import dataclass, field, fields
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from omegaconf import II

# The most that makes sense. A slip of the finger beyond it would take the machine's memory, or an hour, before anything is
# said.
MOST_UNITS = 2**16
MOST_LAYERS = 2**6
MOST_POSITIONS = 2**20


def option(default: Any, help: str, **about: Any) -> Any:
    """A field of a config. The last words of ``help`` may be ``(default: ...)``, for a default that depends on others."""
    return field(default=default, metadata={"help": help, **about})


def number(default: Optional[int], help: str, lowest: int, highest: Optional[int] = None, **about: Any) -> Any:
    """A field that counts something."""
    return option(default, help, range=(lowest, highest), **about)


def size(default: int, help: str) -> Any:
    """A field that is the width of a layer: one of those that become N when everything is N wide."""
    return number(default, help, 1, MOST_UNITS, is_width=True)


def layers(default: int, help: str) -> Any:
    """A field that is a number of layers."""
    return number(default, help, 1, MOST_LAYERS)


def probability(default: Optional[float], help: str) -> Any:
    """A field that is a probability of dropout."""
    return option(default, help, is_probability=True)


def even(parent: type["RecurrentConfig"], name: str, reason: str) -> Any:
    """A parent's field, of which only even values will do."""
    inherited = parent.__dataclass_fields__[name]
    return field(default=inherited.default, metadata={**inherited.metadata, "even": reason})


@dataclass
class RecurrentConfig(FairseqDataclass):
    """Sizes, embeddings and dropout of a recurrent encoder and decoder."""

    dropout: float = probability(0.0, "dropout probability, wherever no flag below says otherwise")
    encoder_embed_dim: int = size(512, "width of the source embeddings")
    encoder_embed_path: Optional[str] = option(
        None, "pretrained source embeddings: a text file, first its numbers of words and values, then a word a line"
    )
    encoder_freeze_embed: bool = option(False, "do not train the source embeddings")
    encoder_hidden_size: int = size(512, "units of one direction of the encoder")
    encoder_layers: int = layers(1, "layers of the encoder; as many as the decoder's")
    encoder_dropout_in: Optional[float] = probability(None, "dropout on the source embeddings (default: --dropout)")
    encoder_dropout_out: Optional[float] = probability(
        None, "dropout on what the encoder's layers pass on (default: --dropout)"
    )
    decoder_embed_dim: int = size(512, "width of the target embeddings")
    decoder_embed_path: Optional[str] = option(
        None, "pretrained target embeddings: a text file, first its numbers of words and values, then a word a line"
    )
    decoder_freeze_embed: bool = option(False, "do not train the target embeddings")
    decoder_hidden_size: int = size(512, "units of the decoder")
    decoder_layers: int = layers(1, "layers of the decoder; as many as the encoder's")
    decoder_dropout_in: Optional[float] = probability(None, "dropout on the target embeddings (default: --dropout)")
    decoder_dropout_out: Optional[float] = probability(
        None, "dropout on what the decoder's layers pass on, and on what predicts the word (default: --dropout)"
    )
    share_decoder_input_output_embed: bool = option(False, "use the target embeddings as the output layer's matrix")
    share_all_embeddings: bool = option(
        False, "one matrix for source, target and output (needs a joined dictionary and equal widths)"
    )
    compile_decoder: bool = option(
        False, "translate through torch.compile; the first words take a minute (benchmarks/README.md)"
    )
    # Without a help, because the flags are the task's.
    max_source_positions: int = field(default=II("task.max_source_positions"), metadata={"range": (1, MOST_POSITIONS)})
    max_target_positions: int = field(default=II("task.max_target_positions"), metadata={"range": (1, MOST_POSITIONS)})


def check_flags(declared: type[RecurrentConfig], config: RecurrentConfig) -> None:
    """Refuse every value that its field, as declared, may not have.

    Raises:
        ValueError: one line that names the flag, its value and what it may be
    """
    for item in fields(declared):
        value = config[item.name]
        if value is None:
            continue
        if "range" in item.metadata:
            check_range(item.name, value, *item.metadata["range"])
        if "is_probability" in item.metadata and not 0 <= value < 1:
            raise ValueError(f"{flag(item.name)} is {value}; a dropout probability must be at least 0 and below 1")
        if "even" in item.metadata and value % 2:
            raise ValueError(f"{flag(item.name)} is {value}, which is odd; make it even: {item.metadata['even']}")


def check_range(name: str, value: int, lowest: int, highest: Optional[int] = None) -> None:
    """Refuse a number of something that is too low or too high.

    Raises:
        ValueError: one line that names the flag, its value and what it may be
    """
    if value < lowest or (highest is not None and value > highest):
        allowed = f"at least {lowest}" if highest is None else f"from {lowest} to {highest}"
        raise ValueError(f"{flag(name)} is {value}; it must be {allowed}")


def flag(name: str) -> str:
    """The command-line flag of a field."""
    return "--" + name.replace("_", "-")


def dropout_or_default(config: RecurrentConfig, name: str) -> float:
    """The probability of ``name``, which falls back to ``--dropout``."""
    value = config[name]
    return config.dropout if value is None else value
