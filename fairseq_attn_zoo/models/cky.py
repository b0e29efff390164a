"""CKY attention and its baseline (Watanabe, Tamura and Ninomiya 2017), with the paper's sizes as defaults."""

from dataclasses import dataclass, field
from typing import Optional

import torch
from torch import Tensor, nn

from ..attention import AttentionMechanism, CKYAttention, DotAttention
from ..chart import DeductionUnits, bracketed
from ..decoders import InputFeedingDecoder, reverse_initial_state
from ..encoders import TwoStackEncoder
from .base import RecurrentModel, register_architecture
from .config import RecurrentConfig, dropout_or_default


@dataclass
class CKYBaselineConfig(RecurrentConfig):
    encoder_embed_dim: int = field(default=256, metadata={"help": "width of the source embeddings"})
    encoder_hidden_size: int = field(default=256, metadata={"help": "d, units of one direction of the encoder"})
    encoder_layers: int = field(default=2, metadata={"help": "layers of each direction; as many as the decoder's"})
    decoder_embed_dim: int = field(default=256, metadata={"help": "width of the target embeddings"})
    decoder_hidden_size: int = field(
        default=256, metadata={"help": "d, units of the decoder: as many as a direction's"}
    )
    decoder_layers: int = field(default=2, metadata={"help": "layers of the decoder; as many as the encoder's"})


@dataclass
class CKYConfig(CKYBaselineConfig):
    attention_cnn_dropout: Optional[float] = field(
        default=None, metadata={"help": "dropout on the cells of the chart (default: --dropout)"}
    )
    attention_relu_after_sum: bool = field(
        default=False,
        metadata={"help": "a ReLU after the deduction unit's sum too; the chart then takes far more time"},
    )


@register_architecture("lstm_cky_baseline", CKYBaselineConfig)
class CKYBaselineModel(RecurrentModel):
    """ANMT: residual LSTM stacks that meet in a sum, two input-feeding LSTM layers, dot-product attention."""

    @classmethod
    def initialize_embedding(cls, weight: Tensor) -> None:
        """The paper says nothing: uniform in [-0.1, 0.1]."""
        nn.init.uniform_(weight, -0.1, 0.1)

    @classmethod
    def build_attention(cls, config: CKYBaselineConfig) -> AttentionMechanism:
        return DotAttention(config.decoder_hidden_size, config.encoder_hidden_size)

    @classmethod
    def build_networks(
        cls, config: CKYBaselineConfig, target_vocabulary: int
    ) -> tuple[TwoStackEncoder, InputFeedingDecoder]:
        if config.encoder_hidden_size != config.decoder_hidden_size:
            raise ValueError(
                f"--encoder-hidden-size ({config.encoder_hidden_size}) and --decoder-hidden-size "
                f"({config.decoder_hidden_size}) must be equal: the decoder starts from the states of one direction"
            )
        dropout = dropout_or_default(config, "encoder_dropout_out")
        encoder = TwoStackEncoder(
            config.encoder_embed_dim,
            config.encoder_hidden_size,
            config.encoder_layers,
            residual=True,
            dropout=dropout,
            dropout_between=dropout,
        )
        for parameter in encoder.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)
        decoder = InputFeedingDecoder(
            cls.build_attention(config),
            config.decoder_embed_dim,
            config.decoder_hidden_size,
            config.decoder_layers,
            reverse_initial_state,
            dropout_or_default(config, "decoder_dropout_out"),
            state_first=True,
        )
        return encoder, decoder


@register_architecture("lstm_cky_attention", CKYConfig)
class CKYModel(CKYBaselineModel):
    """The same with attention to the words and to every span of them."""

    even_sizes = {"encoder_hidden_size": "the deduction unit halves its states"}

    @classmethod
    def build_attention(cls, config: CKYConfig) -> CKYAttention:
        units = DeductionUnits(
            config.encoder_hidden_size,
            dropout_or_default(config, "attention_cnn_dropout"),
            config.attention_relu_after_sum,
        )
        return CKYAttention(units, config.decoder_hidden_size)

    @torch.no_grad()
    def source_trees(self, src_tokens: Tensor) -> list[str]:
        """The winning tree of every source in bracket notation, ``((the dog) (barks </s>))``: structure without a parser.

        Args:
            src_tokens: B x S, padded on any side
        """
        splits = self.encoder(src_tokens)["sentences"].memory.splits
        dictionary = self.encoder.dictionary
        sentences = [[dictionary[word] for word in row if word != dictionary.pad()] for row in src_tokens.tolist()]
        return [bracketed(row, words) for row, words in zip(splits, sentences, strict=True)]
