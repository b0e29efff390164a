"""Memory-network attention (Simon and Schwenk 2017), with the paper's sizes and numbers of hops as defaults."""

from dataclasses import dataclass, field
from typing import Optional

from torch import Tensor, nn

from ..attention import MemoryNetworkAttention
from ..cells import ConditionalLSTMCell
from ..decoders import AttendThenUpdateDecoder, MemoryNetworkDecoder, RecurrentDecoder, joined_initial_state
from ..encoders import RecurrentEncoder
from .base import RecurrentModel, register_architecture
from .config import RecurrentConfig, check_range, dropout_or_default, flag

BEST_WITH_LSTM = (5, 1)  # hops on the source and on the target, Section 3
BEST_WITHOUT_LSTM = (7, 3)
TARGET_MEMORY = "decoder.network.attention."  # begin of the names of the target memory's parameters


@dataclass
class MemoryNetworkConfig(RecurrentConfig):
    encoder_embed_dim: int = field(default=256, metadata={"help": "width of the source embeddings"})
    encoder_hidden_size: int = field(
        default=128, metadata={"help": "units of one direction of the encoder: half of --decoder-hidden-size"}
    )
    decoder_embed_dim: int = field(default=256, metadata={"help": "width of the target embeddings"})
    decoder_hidden_size: int = field(default=256, metadata={"help": "units of the decoder and width of the memories"})
    source_hops: Optional[int] = field(
        default=None, metadata={"help": "hops on the source, 1 to 7 (default: 5; 7 with --no-decoder-lstm)"}
    )
    target_hops: Optional[int] = field(
        default=None,
        metadata={"help": "hops on the target words before, 0 to 5 (default: 1; 3 with --no-decoder-lstm)"},
    )
    no_decoder_lstm: bool = field(
        default=False,
        metadata={
            "help": "let the memory network write the translation alone: no decoder LSTM, so that "
            "--decoder-embed-dim and --decoder-layers mean nothing"
        },
    )


def number_of_hops(config: MemoryNetworkConfig) -> tuple[int, int]:
    """Hops on the source and on the target, the paper's best where the flags say nothing.

    Raises:
        ValueError: if there are too few or too many
    """
    best_source, best_target = BEST_WITHOUT_LSTM if config.no_decoder_lstm else BEST_WITH_LSTM
    source = best_source if config.source_hops is None else config.source_hops
    target = best_target if config.target_hops is None else config.target_hops
    check_range("source_hops", source, 1, 7)
    check_range("target_hops", target, 0, 5)
    if config.no_decoder_lstm and not target:
        raise ValueError(
            "--no-decoder-lstm with --target-hops 0 would never read the words written so far; give it 1 to 5"
        )
    return source, target


@register_architecture("lstm_memnet_hops", MemoryNetworkConfig)
class MemoryNetworkModel(RecurrentModel):
    """Bidirectional LSTM, hops on the words written and on the source, LSTM decoder or none."""

    joins_directions = True

    @classmethod
    def initialize_embedding(cls, weight: Tensor) -> None:
        """The paper says nothing: uniform in [-0.1, 0.1], as fairseq's own ``lstm``."""
        nn.init.uniform_(weight, -0.1, 0.1)

    @classmethod
    def has_output_bias(cls, config: MemoryNetworkConfig) -> bool:
        return not config.no_decoder_lstm

    @classmethod
    def starts_layer_by_layer(cls, config: MemoryNetworkConfig) -> bool:
        return not config.no_decoder_lstm

    @classmethod
    def embeds_target(cls, config: MemoryNetworkConfig) -> bool:
        """Without the LSTM the target memory's two embeddings are the only ones.

        Raises:
            ValueError: if a flag asks for something of the embedding that is not there
        """
        if config.no_decoder_lstm:
            for name in (
                "decoder_embed_path",
                "decoder_freeze_embed",
                "share_decoder_input_output_embed",
                "share_all_embeddings",
            ):
                if config[name]:
                    raise ValueError(
                        f"{flag(name)} is for the decoder LSTM's embeddings, which --no-decoder-lstm does not have; leave it "
                        "out"
                    )
        return not config.no_decoder_lstm

    @classmethod
    def build_networks(
        cls, config: MemoryNetworkConfig, target_vocabulary: int
    ) -> tuple[RecurrentEncoder, RecurrentDecoder]:
        source_hops, target_hops = number_of_hops(config)
        encoder = RecurrentEncoder(
            "lstm",
            config.encoder_embed_dim,
            config.encoder_hidden_size,
            config.encoder_layers,
            dropout=dropout_or_default(config, "encoder_dropout_out"),
        )
        attention = MemoryNetworkAttention(
            config.decoder_hidden_size,
            source_hops,
            target_hops,
            target_vocabulary,
            config.max_target_positions,
            dropout_or_default(config, "decoder_dropout_in"),
        )
        dropout = dropout_or_default(config, "decoder_dropout_out")
        if config.no_decoder_lstm:
            decoder: RecurrentDecoder = MemoryNetworkDecoder(attention, dropout)
            initialized = [encoder]
        else:
            decoder = AttendThenUpdateDecoder(
                attention,
                ConditionalLSTMCell,
                config.decoder_embed_dim,
                config.decoder_hidden_size,
                config.decoder_layers,
                joined_initial_state,
                dropout=dropout,
            )
            initialized = [encoder, decoder]
        for network in initialized:
            for parameter in network.parameters():
                nn.init.uniform_(parameter, -0.1, 0.1)
        return encoder, decoder

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
