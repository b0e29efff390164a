"""Global attention (Luong, Pham and Manning 2015) with its three scores, with or without input feeding."""

from dataclasses import dataclass

from fairseq.dataclass import ChoiceEnum

from ..attention import AttentionMechanism, ConcatAttention, DotAttention, GeneralAttention
from ..decoders import FreeRunningDecoder, InputFeedingDecoder, RecurrentDecoder, joined_initial_state
from ..encoders import RecurrentEncoder
from ..initial_values import InitialValues, uniform
from .base import RecurrentModel
from .config import RecurrentConfig, option, size
from .networks import decoder_sizes, recurrent_encoder
from .registry import Card, Paper, register_architecture
from .widths import HALF

LUONG = Paper(
    "Luong, Pham and Manning",
    2015,
    "Effective approaches to attention-based neural machine translation",
    "https://arxiv.org/abs/1508.04025",
)


@dataclass
class LuongConfig(RecurrentConfig):
    encoder_hidden_size: int = size(256, "units of one direction of the encoder: half of --decoder-hidden-size")
    attention_score: ChoiceEnum(["dot", "general", "concat"]) = option(
        "dot", "score of a target state and a source state"
    )
    attention_dim: int = size(512, "units of the hidden layer of the concat score")
    decoder_no_input_feeding: bool = option(
        False, "do not feed the attentional vector to the next step; training then has no loop over target words"
    )


@register_architecture(
    Card(
        "lstm_luong_attention",
        LuongConfig,
        LUONG,
        "global attention: dot, general, concat; input feeding",
        InitialValues({"*": uniform(0.1)}),  # Section 4.1
        widths=HALF,
    )
)
class LuongModel(RecurrentModel):
    """Bidirectional LSTM, global attention, attentional vector fed back."""

    @classmethod
    def build_networks(cls, config: LuongConfig, target_vocabulary: int) -> tuple[RecurrentEncoder, RecurrentDecoder]:
        encoder = recurrent_encoder(config, "lstm")
        decoder = FreeRunningDecoder if config.decoder_no_input_feeding else InputFeedingDecoder
        attention = build_attention(config, encoder.output_size)
        return encoder, decoder(attention, initial_state=joined_initial_state, **decoder_sizes(config))


def build_attention(config: LuongConfig, source_size: int) -> AttentionMechanism:
    if config.attention_score == "dot":
        return DotAttention(config.decoder_hidden_size, source_size)
    if config.attention_score == "general":
        return GeneralAttention(config.decoder_hidden_size, source_size)
    return ConcatAttention(config.decoder_hidden_size, source_size, config.attention_dim)
