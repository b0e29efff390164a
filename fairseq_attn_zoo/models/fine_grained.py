"""Fine-grained attention and its two ancestors (Choi, Cho and Bengio 2018).

The document gives no sizes: RNNsearch's are the defaults. It gives no initial values: uniform in [-0.1, 0.1].
"""

from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum
from torch import Tensor, nn

from ..attention import FineGrainedAttention, WordAwareAttention
from ..cells import ConditionalLSTMCell
from ..decoders import AttendThenUpdateDecoder, TanhInitialState
from ..encoders import RecurrentEncoder
from .base import RecurrentModel, register_architecture
from .config import RecurrentConfig, check_range, dropout_or_default


@dataclass
class FineGrainedConfig(RecurrentConfig):
    encoder_embed_dim: int = field(default=620, metadata={"help": "width of the source embeddings"})
    encoder_hidden_size: int = field(default=1000, metadata={"help": "H, units of one direction of the encoder"})
    decoder_embed_dim: int = field(default=620, metadata={"help": "width of the target embeddings"})
    decoder_hidden_size: int = field(default=1000, metadata={"help": "units of the decoder"})
    attention_dim: int = field(default=1000, metadata={"help": "units of the score's hidden layer"})
    attention_variant: ChoiceEnum(["att-y-2d", "att-y", "att"]) = field(
        default="att-y-2d",
        metadata={
            "help": "att: one score a source word; att-y: it reads the target word before too; att-y-2d: a score for each "
            "dimension of the source state"
        },
    )
    attention_keep_mib: int = field(
        default=1024,
        metadata={
            "help": "MiB that attention may keep of a batch for the backward pass; if it needs more, it is computed again "
            "there, which costs time (0: always)"
        },
    )


@register_architecture("lstm_fine_grained", FineGrainedConfig)
class FineGrainedModel(RecurrentModel):
    """Bidirectional LSTM, attention with a weight a dimension, LSTM decoder that reads the context."""

    @classmethod
    def initialize_embedding(cls, weight: Tensor) -> None:
        nn.init.uniform_(weight, -0.1, 0.1)

    @classmethod
    def has_output_bias(cls, config: FineGrainedConfig) -> bool:
        return True  # c, Section 2

    @classmethod
    def build_networks(
        cls, config: FineGrainedConfig, target_vocabulary: int
    ) -> tuple[RecurrentEncoder, AttendThenUpdateDecoder]:
        check_range("attention_keep_mib", config.attention_keep_mib, 0)
        encoder = RecurrentEncoder(
            "lstm",
            config.encoder_embed_dim,
            config.encoder_hidden_size,
            config.encoder_layers,
            dropout=dropout_or_default(config, "encoder_dropout_out"),
        )
        mechanism = FineGrainedAttention if config.attention_variant == "att-y-2d" else WordAwareAttention
        attention = mechanism(
            config.decoder_hidden_size,
            encoder.output_size,
            0 if config.attention_variant == "att" else config.decoder_embed_dim,
            config.attention_dim,
            config.attention_keep_mib,
        )
        decoder = AttendThenUpdateDecoder(
            attention,
            ConditionalLSTMCell,
            config.decoder_embed_dim,
            config.decoder_hidden_size,
            config.decoder_layers,
            TanhInitialState(config.encoder_hidden_size, config.decoder_hidden_size, config.decoder_layers),
            dropout=dropout_or_default(config, "decoder_dropout_out"),
        )
        for network in (encoder, decoder):
            for parameter in network.parameters():
                nn.init.uniform_(parameter, -0.1, 0.1)
        return encoder, decoder
