"""Fine-grained attention and its two ancestors (Choi, Cho and Bengio 2018).

The document gives no sizes: RNNsearch's are the defaults. It gives no initial values: uniform in [-0.1, 0.1].
"""

from dataclasses import dataclass

from fairseq.dataclass import ChoiceEnum

from ..attention import FineGrainedAttention, WordAwareAttention
from ..cells import ConditionalLSTMCell
from ..decoders import AttendThenUpdateDecoder, TanhInitialState
from ..encoders import RecurrentEncoder
from ..initial_values import InitialValues, uniform, zeros
from .base import RecurrentModel
from .config import RecurrentConfig, number, option, size
from .networks import decoder_sizes, recurrent_encoder
from .registry import Card, Paper, always, register_architecture

CHOI = Paper(
    "Choi, Cho and Bengio",
    2018,
    "Fine-grained attention mechanism for neural machine translation",
    "https://doi.org/10.1016/j.neucom.2018.01.007",
)


@dataclass
class FineGrainedConfig(RecurrentConfig):
    encoder_embed_dim: int = size(620, "width of the source embeddings")
    encoder_hidden_size: int = size(1000, "H, units of one direction of the encoder")
    decoder_embed_dim: int = size(620, "width of the target embeddings")
    decoder_hidden_size: int = size(1000, "units of the decoder")
    attention_dim: int = size(1000, "units of the score's hidden layer")
    attention_variant: ChoiceEnum(["att-y-2d", "att-y", "att"]) = option(
        "att-y-2d",
        "att: one score per source word; att-y: it reads the target word before too; att-y-2d: a score for each "
        "dimension of the source state",
    )
    attention_keep_mib: int = number(
        1024,
        "MiB that attention may keep of a batch for the backward pass; if it needs more, it is computed again "
        "there, which costs time (0: always)",
        lowest=0,
    )


@register_architecture(
    Card(
        "lstm_fine_grained",
        FineGrainedConfig,
        CHOI,
        "a weight for each dimension of a source state; its two ancestors",
        InitialValues({"*.output_projection.bias": zeros, "*": uniform(0.1)}),
        has_output_bias=always,  # c, Section 2
    )
)
class FineGrainedModel(RecurrentModel):
    """Bidirectional LSTM, attention with a weight per dimension, LSTM decoder that reads the context."""

    @classmethod
    def build_networks(
        cls, config: FineGrainedConfig, target_vocabulary: int
    ) -> tuple[RecurrentEncoder, AttendThenUpdateDecoder]:
        encoder = recurrent_encoder(config, "lstm")
        mechanism = FineGrainedAttention if config.attention_variant == "att-y-2d" else WordAwareAttention
        attention = mechanism(
            config.decoder_hidden_size,
            encoder.output_size,
            0 if config.attention_variant == "att" else config.decoder_embed_dim,
            config.attention_dim,
            config.attention_keep_mib,
        )
        return encoder, AttendThenUpdateDecoder(
            attention,
            ConditionalLSTMCell,
            initial_state=TanhInitialState(
                config.encoder_hidden_size, config.decoder_hidden_size, config.decoder_layers
            ),
            **decoder_sizes(config),
        )
