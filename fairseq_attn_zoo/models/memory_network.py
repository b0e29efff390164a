"""Memory-network attention (Simon and Schwenk 2017), with the paper's sizes and numbers of hops as defaults."""

from dataclasses import dataclass
from typing import Optional

from ..attention import MemoryNetworkAttention
from ..cells import ConditionalLSTMCell
from ..decoders import AttendThenUpdateDecoder, MemoryNetworkDecoder, RecurrentDecoder, joined_initial_state
from ..encoders import RecurrentEncoder
from ..initial_values import InitialValues, constant, uniform, zeros
from .base import RecurrentModel
from .config import RecurrentConfig, dropout_or_default, flag, number, option, size
from .networks import decoder_sizes, recurrent_encoder
from .registry import Card, Paper, register_architecture
from .widths import HALF

SIMON = Paper("Simon and Schwenk", 2017, "Neural machine translation with memory network based attention")
BEST_WITH_LSTM = (5, 1)  # hops on the source and on the target, Section 3
BEST_WITHOUT_LSTM = (7, 3)
TARGET_MEMORY = "decoder.network.attention."  # begin of the names of the target memory's parameters


@dataclass
class MemoryNetworkConfig(RecurrentConfig):
    encoder_embed_dim: int = size(256, "width of the source embeddings")
    encoder_hidden_size: int = size(128, "units of one direction of the encoder: half of --decoder-hidden-size")
    decoder_embed_dim: int = size(256, "width of the target embeddings")
    decoder_hidden_size: int = size(256, "units of the decoder and width of the memories")
    source_hops: Optional[int] = number(
        None, "hops on the source, 1 to 7 (default: 5; 7 with --no-decoder-lstm)", lowest=1, highest=7
    )
    target_hops: Optional[int] = number(
        None,
        "hops on the target words before, 0 to 5 (default: 1; 3 with --no-decoder-lstm)",
        lowest=0,
        highest=5,
    )
    no_decoder_lstm: bool = option(
        False,
        "let the memory network write the translation alone: no decoder LSTM, so that --decoder-embed-dim and "
        "--decoder-layers mean nothing, and no loop over target words in training",
    )


def number_of_hops(config: MemoryNetworkConfig) -> tuple[int, int]:
    """Hops on the source and on the target, the paper's best where the flags say nothing."""
    best_source, best_target = BEST_WITHOUT_LSTM if config.no_decoder_lstm else BEST_WITH_LSTM
    return (
        best_source if config.source_hops is None else config.source_hops,
        best_target if config.target_hops is None else config.target_hops,
    )


def check(config: MemoryNetworkConfig) -> None:
    """Without the LSTM the target memory's two embeddings are the only ones, and the only thing that reads target words.

    Raises:
        ValueError: if there is no LSTM and the flags leave nothing to read, or ask for something of its embeddings
    """
    if not config.no_decoder_lstm:
        return
    if config.target_hops == 0:
        raise ValueError(
            "--no-decoder-lstm with --target-hops 0 would never read the words written so far; give it 1 to 5"
        )
    for name in (
        "decoder_embed_path",
        "decoder_freeze_embed",
        "share_decoder_input_output_embed",
        "share_all_embeddings",
    ):
        if config[name]:
            raise ValueError(
                f"{flag(name)} is for the decoder LSTM's embeddings, which --no-decoder-lstm does not have; leave it out"
            )


def has_lstm(config: MemoryNetworkConfig) -> bool:
    return not config.no_decoder_lstm


@register_architecture(
    Card(
        "lstm_memnet_hops",
        MemoryNetworkConfig,
        SIMON,
        "several hops on the source and on the words written; with or without a decoder LSTM",
        # The paper says only that the query of a decoder without LSTM starts at 0.1; the rest as in fairseq's own lstm.
        InitialValues({"*.query": constant(0.1), "*.output_projection.bias": zeros, "*": uniform(0.1)}),
        widths=HALF,
        starts_layer_by_layer=has_lstm,
        embeds_target=has_lstm,
        has_output_bias=has_lstm,
        check=check,
    )
)
class MemoryNetworkModel(RecurrentModel):
    """Bidirectional LSTM, hops on the words written and on the source, LSTM decoder or none."""

    @classmethod
    def build_networks(
        cls, config: MemoryNetworkConfig, target_vocabulary: int
    ) -> tuple[RecurrentEncoder, RecurrentDecoder]:
        encoder = recurrent_encoder(config, "lstm")
        attention = MemoryNetworkAttention(
            config.decoder_hidden_size,
            *number_of_hops(config),
            target_vocabulary,
            config.max_target_positions,
            dropout_or_default(config, "decoder_dropout_in"),
        )
        if config.no_decoder_lstm:
            return encoder, MemoryNetworkDecoder(attention, dropout_or_default(config, "decoder_dropout_out"))
        return encoder, AttendThenUpdateDecoder(
            attention, ConditionalLSTMCell, initial_state=joined_initial_state, **decoder_sizes(config)
        )

    def load_state_dict(self, state_dict, strict=True, model_cfg=None, args=None):
        """Load parameters, of a model with any number of hops.

        Raises:
            ValueError: if this model has hops on the target and the checkpoint was trained without any
        """
        saved = {name for name in state_dict if name.startswith(TARGET_MEMORY)}
        built = {name for name in self.state_dict() if name.startswith(TARGET_MEMORY)}
        if built and not saved:
            raise ValueError(
                "the checkpoint was trained with --target-hops 0 and has no memory of target words; it can only be run "
                "with target_hops 0 in --model-overrides"
            )
        if not built:
            state_dict = {name: value for name, value in state_dict.items() if name not in saved}
        return super().load_state_dict(state_dict, strict, model_cfg, args)
