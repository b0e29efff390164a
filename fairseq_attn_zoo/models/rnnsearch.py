"""RNNsearch and its baseline RNNencdec (Bahdanau, Cho and Bengio 2015), with the paper's sizes as defaults.

And RNNsearch with coverage (Tu, Lu, Liu, Liu and Li 2016), of the same sizes.
"""

from dataclasses import dataclass, replace

from ..attention import AdditiveAttention, AttentionMechanism, CoverageAttention
from ..cells import ConditionalGRUCell
from ..decoders import AttendThenUpdateDecoder, FixedContextDecoder, MaxoutReadout, TanhInitialState
from ..encoders import RecurrentEncoder
from ..initial_values import InitialValues, normal, orthogonal, zeros
from .base import RecurrentModel
from .config import RecurrentConfig, number, size
from .networks import decoder_sizes, recurrent_encoder
from .registry import Card, Paper, register_architecture

BAHDANAU = Paper(
    "Bahdanau, Cho and Bengio",
    2015,
    "Neural machine translation by jointly learning to align and translate",
    "https://arxiv.org/abs/1409.0473",
)
TU = Paper(
    "Tu, Lu, Liu, Liu and Li",
    2016,
    "Modeling coverage for neural machine translation",
    "https://arxiv.org/abs/1601.04811",
)


@dataclass
class RNNEncDecConfig(RecurrentConfig):
    encoder_embed_dim: int = size(620, "m, width of the source embeddings")
    encoder_hidden_size: int = size(1000, "n, units of one direction of the encoder")
    decoder_embed_dim: int = size(620, "m, width of the target embeddings")
    decoder_hidden_size: int = size(1000, "n, units of the decoder")
    decoder_maxout_size: int = size(500, "l, maxout units of the readout (each is the larger of two)")


@dataclass
class RNNSearchConfig(RNNEncDecConfig):
    attention_dim: int = size(1000, "units of the alignment model's hidden layer")


@dataclass
class CoverageConfig(RNNSearchConfig):
    attention_max_fertility: int = number(
        2, "N, the most target words that coverage expects of a source word", lowest=1
    )


RNNENCDEC = Card(
    "gru_rnnencdec",
    RNNEncDecConfig,
    BAHDANAU,
    "RNN encoder-decoder of Cho et al. (2014), one fixed context: the baseline",
    # The paper's appendix: recurrent matrices orthogonal, one per gate; W_a and U_a from N(0, 0.001^2), v_a and the biases
    # zero; the rest from N(0, 0.01^2).
    InitialValues(
        {
            "*.attention.energy": zeros,
            "*.attention.*": normal(0.001),
            "*.bias_*": zeros,
            "*.weight_hh_*": orthogonal,
            "*_recurrence.weight": orthogonal,
            "*": normal(0.01),
        }
    ),
    has_attention=False,
)
RNNSEARCH = replace(
    RNNENCDEC,
    name="gru_rnnsearch",
    config=RNNSearchConfig,
    summary="RNNsearch: additive attention",
    has_attention=True,
)
COVERAGE = replace(
    RNNSEARCH,
    name="gru_coverage",
    config=CoverageConfig,
    paper=TU,
    summary="RNNsearch that sees how much of each source word is translated already: linguistic coverage with fertility",
    # The paper says nothing of them. V_a starts like the rest of the attention, every fertility at N / 2.
    initial_values=RNNSEARCH.initial_values.but({"*.fertility_projection.weight": zeros}),
)


def gru_decoder_arguments(config: RNNEncDecConfig, context_size: int) -> dict:
    """What the decoders of this file have beside their context."""
    return {
        **decoder_sizes(config),
        "initial_state": TanhInitialState(
            config.encoder_hidden_size, config.decoder_hidden_size, config.decoder_layers
        ),
        "readout": MaxoutReadout(
            config.decoder_hidden_size, config.decoder_embed_dim, context_size, config.decoder_maxout_size
        ),
    }


@register_architecture(RNNENCDEC)
class RNNEncDecModel(RecurrentModel):
    """Forward GRU whose last state is every word's context; no attention."""

    @classmethod
    def build_networks(
        cls, config: RNNEncDecConfig, target_vocabulary: int
    ) -> tuple[RecurrentEncoder, FixedContextDecoder]:
        encoder = recurrent_encoder(config, "gru", bidirectional=False)
        return encoder, FixedContextDecoder(encoder.output_size, **gru_decoder_arguments(config, encoder.output_size))


@register_architecture(RNNSEARCH)
class RNNSearchModel(RecurrentModel):
    """Bidirectional GRU, additive attention, conditional GRU, maxout readout."""

    @classmethod
    def build_attention(cls, config: RNNSearchConfig, source_size: int) -> AttentionMechanism:
        return AdditiveAttention(config.decoder_hidden_size, source_size, config.attention_dim)

    @classmethod
    def build_networks(
        cls, config: RNNSearchConfig, target_vocabulary: int
    ) -> tuple[RecurrentEncoder, AttendThenUpdateDecoder]:
        encoder = recurrent_encoder(config, "gru")
        attention = cls.build_attention(config, encoder.output_size)
        return encoder, AttendThenUpdateDecoder(
            attention, ConditionalGRUCell, **gru_decoder_arguments(config, encoder.output_size)
        )


@register_architecture(COVERAGE)
class CoverageModel(RNNSearchModel):
    """RNNsearch whose attention remembers how much of each source word is translated."""

    @classmethod
    def build_attention(cls, config: CoverageConfig, source_size: int) -> CoverageAttention:
        return CoverageAttention(
            config.decoder_hidden_size, source_size, config.attention_dim, config.attention_max_fertility
        )
