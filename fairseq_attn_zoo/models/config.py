"""The flags that every architecture has; a mechanism's own subclass adds only its own.

fairseq makes a command-line flag and a hydra field of each attribute. Three of its traps decide how these are written:
a bool whose default is True would become a flag that turns it off; a field named like a flag of fairseq's own
(``seed``, ``beam``, ``lr``) would silently take that flag's value, hence the prefixes; and annotations must be real
types, so that this file must not import ``annotations`` from ``__future__``.
"""

from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import FairseqDataclass
from omegaconf import II


@dataclass
class RecurrentConfig(FairseqDataclass):
    """Sizes, embeddings and dropout of a recurrent encoder and decoder."""

    dropout: float = field(default=0.0, metadata={"help": "dropout probability, wherever no flag below says otherwise"})
    encoder_embed_dim: int = field(default=512, metadata={"help": "width of the source embeddings"})
    encoder_embed_path: Optional[str] = field(
        default=None,
        metadata={
            "help": "pretrained source embeddings: a text file, first its numbers of words and values, then a word a line"
        },
    )
    encoder_freeze_embed: bool = field(default=False, metadata={"help": "do not train the source embeddings"})
    encoder_hidden_size: int = field(default=512, metadata={"help": "units of one direction of the encoder"})
    encoder_layers: int = field(default=1, metadata={"help": "layers of the encoder; as many as the decoder's"})
    encoder_dropout_in: Optional[float] = field(
        default=None, metadata={"help": "dropout on the source embeddings (default: --dropout)"}
    )
    encoder_dropout_out: Optional[float] = field(
        default=None,
        metadata={
            "help": "dropout on what the encoder's layers pass on (lstm_kv_*: the top ones only; default: --dropout)"
        },
    )
    decoder_embed_dim: int = field(default=512, metadata={"help": "width of the target embeddings"})
    decoder_embed_path: Optional[str] = field(
        default=None,
        metadata={
            "help": "pretrained target embeddings: a text file, first its numbers of words and values, then a word a line"
        },
    )
    decoder_freeze_embed: bool = field(default=False, metadata={"help": "do not train the target embeddings"})
    decoder_hidden_size: int = field(default=512, metadata={"help": "units of the decoder"})
    decoder_layers: int = field(default=1, metadata={"help": "layers of the decoder; as many as the encoder's"})
    decoder_dropout_in: Optional[float] = field(
        default=None, metadata={"help": "dropout on the target embeddings (default: --dropout)"}
    )
    decoder_dropout_out: Optional[float] = field(
        default=None,
        metadata={
            "help": "dropout on what the decoder's layers pass on, and on what predicts the word (default: --dropout)"
        },
    )
    share_decoder_input_output_embed: bool = field(
        default=False, metadata={"help": "use the target embeddings as the output layer's matrix"}
    )
    share_all_embeddings: bool = field(
        default=False,
        metadata={"help": "one matrix for source, target and output (needs a joined dictionary and equal widths)"},
    )
    compile_decoder: bool = field(
        default=False,
        metadata={"help": "translate through torch.compile; the first words take a minute (benchmarks/README.md)"},
    )
    max_source_positions: int = II("task.max_source_positions")
    max_target_positions: int = II("task.max_target_positions")


# The fields of every architecture that count something, with the most that makes sense, and those that are probabilities.
# A slip of the finger beyond it would take the machine's memory, or an hour, before anything is said.
COUNTS = {"_dim": 2**16, "_size": 2**16, "_layers": 2**6, "_positions": 2**20}
PROBABILITIES = ("dropout", "_dropout_in", "_dropout_out")  # attention_cnn_dropout ends like the first


def check_ranges(config: RecurrentConfig) -> None:
    """Refuse sizes below 1 or beyond any use, and probabilities outside [0, 1).

    Raises:
        ValueError: one line that names the flag, its value and what it may be
    """
    for name, value in config.items():
        if value is None:
            continue
        for ending, highest in COUNTS.items():
            if name.endswith(ending):
                check_range(name, value, 1, highest)
        if name.endswith(PROBABILITIES) and not 0 <= value < 1:
            raise ValueError(f"{flag(name)} is {value}; a dropout probability must be at least 0 and below 1")


def check_range(name: str, value: int, lowest: int, highest: int | None = None) -> None:
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
