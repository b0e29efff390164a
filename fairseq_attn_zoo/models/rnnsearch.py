"""RNNsearch and its baseline RNNencdec (Bahdanau, Cho and Bengio 2015), with the paper's sizes as defaults.

And RNNsearch with coverage (Tu, Lu, Liu, Liu and Li 2016), of the same sizes.
"""

from dataclasses import dataclass, field

from torch import Tensor, nn

from ..attention import AdditiveAttention, CoverageAttention
from ..cells import ConditionalGRUCell
from ..decoders import AttendThenUpdateDecoder, FixedContextDecoder, MaxoutReadout, TanhInitialState
from ..encoders import RecurrentEncoder
from .base import RecurrentModel, register_architecture
from .config import RecurrentConfig, check_range, dropout_or_default


@dataclass
class RNNEncDecConfig(RecurrentConfig):
    encoder_embed_dim: int = field(default=620, metadata={"help": "m, width of the source embeddings"})
    encoder_hidden_size: int = field(default=1000, metadata={"help": "n, units of one direction of the encoder"})
    decoder_embed_dim: int = field(default=620, metadata={"help": "m, width of the target embeddings"})
    decoder_hidden_size: int = field(default=1000, metadata={"help": "n, units of the decoder"})
    decoder_maxout_size: int = field(
        default=500, metadata={"help": "l, maxout units of the readout (each is the larger of two)"}
    )


@dataclass
class RNNSearchConfig(RNNEncDecConfig):
    attention_dim: int = field(default=1000, metadata={"help": "units of the alignment model's hidden layer"})


@dataclass
class CoverageConfig(RNNSearchConfig):
    attention_max_fertility: int = field(
        default=2, metadata={"help": "N, the most target words that coverage expects of a source word"}
    )


def build_gru_encoder(config: RNNEncDecConfig, bidirectional: bool) -> RecurrentEncoder:
    encoder = RecurrentEncoder(
        "gru",
        config.encoder_embed_dim,
        config.encoder_hidden_size,
        config.encoder_layers,
        bidirectional,
        dropout_or_default(config, "encoder_dropout_out"),
    )
    # The paper's appendix: recurrent matrices orthogonal, one a gate; biases zero; the rest from N(0, 0.01^2).
    for name, parameter in encoder.rnn.named_parameters():
        if "bias" in name:
            nn.init.zeros_(parameter)
        elif "weight_hh" in name:
            for recurrent in parameter.data.chunk(3):
                nn.init.orthogonal_(recurrent)
        else:
            nn.init.normal_(parameter, std=0.01)
    return encoder


def build_readout(config: RNNEncDecConfig, context_size: int) -> MaxoutReadout:
    return MaxoutReadout(config.decoder_hidden_size, config.decoder_embed_dim, context_size, config.decoder_maxout_size)


class BahdanauModel(RecurrentModel):
    @classmethod
    def initialize_embedding(cls, weight: Tensor) -> None:
        """The paper's appendix: N(0, 0.01^2)."""
        nn.init.normal_(weight, std=0.01)


@register_architecture("gru_rnnsearch", RNNSearchConfig)
class RNNSearchModel(BahdanauModel):
    """Bidirectional GRU, additive attention, conditional GRU, maxout readout."""

    @classmethod
    def build_attention(cls, config: RNNSearchConfig, source_size: int) -> AdditiveAttention:
        return AdditiveAttention(config.decoder_hidden_size, source_size, config.attention_dim)

    @classmethod
    def build_networks(
        cls, config: RNNSearchConfig, target_vocabulary: int
    ) -> tuple[RecurrentEncoder, AttendThenUpdateDecoder]:
        encoder = build_gru_encoder(config, bidirectional=True)
        decoder = AttendThenUpdateDecoder(
            cls.build_attention(config, encoder.output_size),
            ConditionalGRUCell,
            config.decoder_embed_dim,
            config.decoder_hidden_size,
            config.decoder_layers,
            TanhInitialState(config.encoder_hidden_size, config.decoder_hidden_size, config.decoder_layers),
            build_readout(config, encoder.output_size),
            dropout_or_default(config, "decoder_dropout_out"),
        )
        return encoder, decoder


@register_architecture("gru_coverage", CoverageConfig)
class CoverageModel(RNNSearchModel):
    """RNNsearch whose attention remembers how much of each source word is translated."""

    @classmethod
    def build_attention(cls, config: CoverageConfig, source_size: int) -> CoverageAttention:
        check_range("attention_max_fertility", config.attention_max_fertility, 1)
        return CoverageAttention(
            config.decoder_hidden_size, source_size, config.attention_dim, config.attention_max_fertility
        )


@register_architecture("gru_rnnencdec", RNNEncDecConfig)
class RNNEncDecModel(BahdanauModel):
    """Forward GRU whose last state is every word's context; no attention."""

    has_attention = False

    @classmethod
    def build_networks(
        cls, config: RNNEncDecConfig, target_vocabulary: int
    ) -> tuple[RecurrentEncoder, FixedContextDecoder]:
        encoder = build_gru_encoder(config, bidirectional=False)
        decoder = FixedContextDecoder(
            encoder.output_size,
            config.decoder_embed_dim,
            config.decoder_hidden_size,
            config.decoder_layers,
            TanhInitialState(config.encoder_hidden_size, config.decoder_hidden_size, config.decoder_layers),
            build_readout(config, encoder.output_size),
            dropout_or_default(config, "decoder_dropout_out"),
        )
        return encoder, decoder
