"""Key-value attention and its two siblings (Mino et al. 2017), with the paper's sizes as defaults."""

from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum
from torch import Tensor, nn

from ..attention import HalfScoredAttention, KeyValueAttention, MergedSourceAttention, SharedMemoryAttention
from ..decoders import KeyValueDecoder
from ..encoders import TwoStackEncoder
from .base import RecurrentModel, register_architecture
from .config import RecurrentConfig, dropout_or_default

INITIAL_STD = 0.05  # Section 4.2: all weight matrices from N(0, 0.05^2)


@dataclass
class KeyValueBaselineConfig(RecurrentConfig):
    encoder_embed_dim: int = field(default=540, metadata={"help": "K, width of the source embeddings"})
    encoder_hidden_size: int = field(default=540, metadata={"help": "K, units of one direction of the encoder"})
    encoder_layers: int = field(default=2, metadata={"help": "layers of each direction; as many as the decoder's"})
    decoder_embed_dim: int = field(default=540, metadata={"help": "K, width of the target embeddings"})
    decoder_hidden_size: int = field(default=540, metadata={"help": "K, units of the decoder and width of the memory"})
    decoder_layers: int = field(default=2, metadata={"help": "layers of the decoder; as many as the encoder's"})
    attention_query: ChoiceEnum(["previous", "current"]) = field(
        default="previous",
        metadata={"help": "attend with the decoder state before the word just read (the paper's) or after it"},
    )


@dataclass
class KeyValueConfig(KeyValueBaselineConfig):
    attention_key_query: ChoiceEnum(["upper-half", "projected"]) = field(
        default="upper-half",
        metadata={"help": "score the keys with the upper half of the decoder state, or with a learned map of it"},
    )


@register_architecture("lstm_kv_baseline", KeyValueBaselineConfig)
class KeyValueBaselineModel(RecurrentModel):
    """*attn*: one memory, which is key and value at once."""

    @classmethod
    def initialize_embedding(cls, weight: Tensor) -> None:
        """Section 4.2: N(0, 0.05^2)."""
        nn.init.normal_(weight, std=INITIAL_STD)

    @classmethod
    def has_output_bias(cls, config: KeyValueBaselineConfig) -> bool:
        return True  # b_o, Eq. 4

    @classmethod
    def build_attention(cls, config: KeyValueBaselineConfig, source_size: int) -> MergedSourceAttention:
        return SharedMemoryAttention(config.decoder_hidden_size, source_size)

    @classmethod
    def build_networks(
        cls, config: KeyValueBaselineConfig, target_vocabulary: int
    ) -> tuple[TwoStackEncoder, KeyValueDecoder]:
        encoder = TwoStackEncoder(
            config.encoder_embed_dim,
            config.encoder_hidden_size,
            config.encoder_layers,
            dropout=dropout_or_default(config, "encoder_dropout_out"),
        )
        decoder = KeyValueDecoder(
            cls.build_attention(config, encoder.output_size),
            config.decoder_embed_dim,
            config.decoder_hidden_size,
            config.decoder_layers,
            attend_with_current=config.attention_query == "current",
            dropout=dropout_or_default(config, "decoder_dropout_out"),
        )
        for network in (encoder, decoder):
            for name, parameter in network.named_parameters():
                if "bias" in name:
                    nn.init.zeros_(parameter)
                else:
                    nn.init.normal_(parameter, std=INITIAL_STD)
        return encoder, decoder


@register_architecture("lstm_kv_attention", KeyValueConfig)
class KeyValueModel(KeyValueBaselineModel):
    """*key-value*: keys for the score, values for the context."""

    even_sizes = {
        "encoder_hidden_size": "the state of each encoder direction is cut into two halves",
        "decoder_hidden_size": "the decoder state is cut into two halves",
    }

    @classmethod
    def build_attention(cls, config: KeyValueConfig, source_size: int) -> KeyValueAttention:
        return KeyValueAttention(
            config.decoder_hidden_size, source_size, project_query=config.attention_key_query == "projected"
        )


@register_architecture("lstm_kv_modified_init", KeyValueBaselineConfig)
class ModifiedInitModel(KeyValueBaselineModel):
    """*modifying-IW*: the score reads the memory's upper half; the readout starts without it."""

    even_sizes = {"decoder_hidden_size": "the decoder state is cut into two halves"}

    @classmethod
    def build_attention(cls, config: KeyValueBaselineConfig, source_size: int) -> HalfScoredAttention:
        return HalfScoredAttention(config.decoder_hidden_size, source_size)

    @classmethod
    def build_networks(
        cls, config: KeyValueBaselineConfig, target_vocabulary: int
    ) -> tuple[TwoStackEncoder, KeyValueDecoder]:
        encoder, decoder = super().build_networks(config, target_vocabulary)
        size = config.decoder_hidden_size
        # Section 3.3: the columns of W_d that read the upper half of c_j, K + 1 to 3K/2, start at zero.
        nn.init.zeros_(decoder.readout.weight[:, size : size + size // 2])
        return encoder, decoder
