"""Key-value attention and its two siblings (Mino et al. 2017), with the paper's sizes as defaults."""

from dataclasses import dataclass, replace
from typing import Optional

from fairseq.dataclass import ChoiceEnum
from torch import Tensor, nn

from ..attention import HalfScoredAttention, KeyValueAttention, MergedSourceAttention, SharedMemoryAttention
from ..decoders import KeyValueDecoder
from ..encoders import TwoStackEncoder
from ..initial_values import InitialValues, normal, zeros
from .base import RecurrentModel
from .config import RecurrentConfig, even, layers, option, probability, size
from .networks import decoder_sizes, two_stack_encoder
from .registry import Card, Paper, always, register_architecture

MINO = Paper(
    "Mino, Utiyama, Sumita and Tokunaga",
    2017,
    "Key-value attention mechanism for neural machine translation",
    "https://aclanthology.org/I17-2049",
)
WEIGHTS = normal(0.05)  # Section 4.2


@dataclass
class KeyValueBaselineConfig(RecurrentConfig):
    encoder_embed_dim: int = size(540, "K, width of the source embeddings")
    encoder_hidden_size: int = size(540, "K, units of one direction of the encoder")
    encoder_layers: int = layers(2, "layers of each direction; as many as the decoder's")
    encoder_dropout_out: Optional[float] = probability(
        None, "dropout on what the encoder's top layers pass on (default: --dropout)"
    )
    decoder_embed_dim: int = size(540, "K, width of the target embeddings")
    decoder_hidden_size: int = size(540, "K, units of the decoder and width of the memory")
    decoder_layers: int = layers(2, "layers of the decoder; as many as the encoder's")
    attention_query: ChoiceEnum(["previous", "current"]) = option(
        "previous", "attend with the decoder state before the word just read (the paper's) or after it"
    )


@dataclass
class KeyValueConfig(KeyValueBaselineConfig):
    encoder_hidden_size: int = even(
        KeyValueBaselineConfig, "encoder_hidden_size", "the state of each encoder direction is cut into two halves"
    )
    decoder_hidden_size: int = even(
        KeyValueBaselineConfig, "decoder_hidden_size", "the decoder state is cut into two halves"
    )
    attention_key_query: ChoiceEnum(["upper-half", "projected"]) = option(
        "upper-half", "score the keys with the upper half of the decoder state, or with a learned map of it"
    )


@dataclass
class ModifiedInitConfig(KeyValueBaselineConfig):
    decoder_hidden_size: int = even(
        KeyValueBaselineConfig, "decoder_hidden_size", "the decoder state is cut into two halves"
    )


def without_the_upper_half(weight: Tensor, owner: nn.Module) -> None:
    """Section 3.3: the columns of W_d that read the upper half of c_j, K + 1 to 3K/2, start at zero."""
    WEIGHTS(weight, owner)
    size = weight.size(0)
    nn.init.zeros_(weight[:, size : size + size // 2])


BASELINE = Card(
    "lstm_kv_baseline",
    KeyValueBaselineConfig,
    MINO,
    "one memory, which is key and value at once: the baseline",
    InitialValues({"*.bias*": zeros, "*": WEIGHTS}),
    has_output_bias=always,  # b_o, Eq. 4
)


@register_architecture(BASELINE)
class KeyValueBaselineModel(RecurrentModel):
    """*attn*: one memory, which is key and value at once."""

    @classmethod
    def build_attention(cls, config: KeyValueBaselineConfig, source_size: int) -> MergedSourceAttention:
        return SharedMemoryAttention(config.decoder_hidden_size, source_size)

    @classmethod
    def build_networks(
        cls, config: KeyValueBaselineConfig, target_vocabulary: int
    ) -> tuple[TwoStackEncoder, KeyValueDecoder]:
        encoder = two_stack_encoder(config)
        return encoder, KeyValueDecoder(
            cls.build_attention(config, encoder.output_size),
            attend_with_current=config.attention_query == "current",
            **decoder_sizes(config),
        )


@register_architecture(
    replace(
        BASELINE,
        name="lstm_kv_attention",
        config=KeyValueConfig,
        summary="keys for the score, values for the context",
    )
)
class KeyValueModel(KeyValueBaselineModel):
    """*key-value*: keys for the score, values for the context."""

    @classmethod
    def build_attention(cls, config: KeyValueConfig, source_size: int) -> KeyValueAttention:
        return KeyValueAttention(
            config.decoder_hidden_size, source_size, project_query=config.attention_key_query == "projected"
        )


@register_architecture(
    replace(
        BASELINE,
        name="lstm_kv_modified_init",
        config=ModifiedInitConfig,
        summary="the baseline with half of its memory kept from the readout at first",
        initial_values=BASELINE.initial_values.but({"decoder.network.readout.weight": without_the_upper_half}),
    )
)
class ModifiedInitModel(KeyValueBaselineModel):
    """*modifying-IW*: the score reads the memory's upper half; the readout starts without it."""

    @classmethod
    def build_attention(cls, config: KeyValueBaselineConfig, source_size: int) -> HalfScoredAttention:
        return HalfScoredAttention(config.decoder_hidden_size, source_size)
