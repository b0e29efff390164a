"""Global attention (Luong, Pham and Manning 2015) with its three scores, with or without input feeding."""

from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum
from torch import Tensor, nn

from ..attention import AttentionMechanism, ConcatAttention, DotAttention, GeneralAttention
from ..decoders import FreeRunningDecoder, InputFeedingDecoder, RecurrentDecoder, joined_initial_state
from ..encoders import RecurrentEncoder
from .base import RecurrentModel, register_architecture
from .config import RecurrentConfig, dropout_or_default


@dataclass
class LuongConfig(RecurrentConfig):
    encoder_hidden_size: int = field(
        default=256, metadata={"help": "units of one direction of the encoder: half of --decoder-hidden-size"}
    )
    attention_score: ChoiceEnum(["dot", "general", "concat"]) = field(
        default="dot", metadata={"help": "score of a target state and a source state"}
    )
    attention_dim: int = field(default=512, metadata={"help": "units of the hidden layer of the concat score"})
    decoder_no_input_feeding: bool = field(
        default=False, metadata={"help": "do not feed the attentional vector to the next step"}
    )


@register_architecture("lstm_luong_attention", LuongConfig)
class LuongModel(RecurrentModel):
    """Bidirectional LSTM, global attention, attentional vector fed back."""

    joins_directions = True

    @classmethod
    def initialize_embedding(cls, weight: Tensor) -> None:
        """Luong 2015, Section 4.1: all parameters uniform in [-0.1, 0.1]."""
        nn.init.uniform_(weight, -0.1, 0.1)

    @classmethod
    def build_networks(cls, config: LuongConfig, target_vocabulary: int) -> tuple[RecurrentEncoder, RecurrentDecoder]:
        encoder = RecurrentEncoder(
            "lstm",
            config.encoder_embed_dim,
            config.encoder_hidden_size,
            config.encoder_layers,
            dropout=dropout_or_default(config, "encoder_dropout_out"),
        )
        for parameter in encoder.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)
        decoder = (FreeRunningDecoder if config.decoder_no_input_feeding else InputFeedingDecoder)(
            build_attention(config, encoder.output_size),
            config.decoder_embed_dim,
            config.decoder_hidden_size,
            config.decoder_layers,
            joined_initial_state,
            dropout_or_default(config, "decoder_dropout_out"),
        )
        return encoder, decoder


def build_attention(config: LuongConfig, source_size: int) -> AttentionMechanism:
    if config.attention_score == "dot":
        return DotAttention(config.decoder_hidden_size, source_size)
    if config.attention_score == "general":
        return GeneralAttention(config.decoder_hidden_size, source_size)
    return ConcatAttention(config.decoder_hidden_size, source_size, config.attention_dim)
