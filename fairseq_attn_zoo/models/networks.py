"""The encoders, and the sizes of the decoders, as the flags that all architectures have say them."""

from typing import Any

from ..encoders import RecurrentEncoder, TwoStackEncoder
from .config import dropout_or_default


def recurrent_encoder(config: Any, cell: str, bidirectional: bool = True) -> RecurrentEncoder:
    """One stack of layers of cells, ``"gru"`` or ``"lstm"``."""
    return RecurrentEncoder(
        cell,
        config.encoder_embed_dim,
        config.encoder_hidden_size,
        config.encoder_layers,
        bidirectional,
        dropout_or_default(config, "encoder_dropout_out"),
    )


def two_stack_encoder(config: Any, residual: bool = False, dropout_between: bool = False) -> TwoStackEncoder:
    """Two stacks of LSTMs, one per direction; ``dropout_between`` also drops what a lower layer passes up."""
    dropout = dropout_or_default(config, "encoder_dropout_out")
    return TwoStackEncoder(
        config.encoder_embed_dim,
        config.encoder_hidden_size,
        config.encoder_layers,
        residual,
        dropout,
        dropout if dropout_between else 0.0,
    )


def decoder_sizes(config: Any) -> dict[str, Any]:
    """The arguments that every decoder with layers has."""
    return {
        "embed_size": config.decoder_embed_dim,
        "hidden_size": config.decoder_hidden_size,
        "num_layers": config.decoder_layers,
        "dropout": dropout_or_default(config, "decoder_dropout_out"),
    }
