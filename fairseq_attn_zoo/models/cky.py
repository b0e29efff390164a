"""CKY attention and its baseline (Watanabe, Tamura and Ninomiya 2017), with the paper's sizes as defaults."""

from dataclasses import dataclass, replace
from typing import Optional

import torch
from torch import Tensor

from ..attention import AttentionMechanism, CKYAttention, DotAttention
from ..chart import DeductionUnits, bracketed
from ..decoders import InputFeedingDecoder, reverse_initial_state
from ..encoders import TwoStackEncoder
from ..initial_values import InitialValues, by_inputs, uniform
from .base import RecurrentModel
from .config import RecurrentConfig, dropout_or_default, even, layers, option, probability, size
from .networks import decoder_sizes, two_stack_encoder
from .registry import Card, Paper, register_architecture
from .widths import EQUAL

WATANABE = Paper(
    "Watanabe, Tamura and Ninomiya",
    2017,
    "CKY-based convolutional attention for neural machine translation",
    "https://aclanthology.org/I17-2001",
)


@dataclass
class CKYBaselineConfig(RecurrentConfig):
    encoder_embed_dim: int = size(256, "width of the source embeddings")
    encoder_hidden_size: int = size(256, "d, units of one direction of the encoder")
    encoder_layers: int = layers(2, "layers of each direction; as many as the decoder's")
    decoder_embed_dim: int = size(256, "width of the target embeddings")
    decoder_hidden_size: int = size(256, "d, units of the decoder: as many as a direction's")
    decoder_layers: int = layers(2, "layers of the decoder; as many as the encoder's")


@dataclass
class CKYConfig(CKYBaselineConfig):
    encoder_hidden_size: int = even(CKYBaselineConfig, "encoder_hidden_size", "the deduction unit halves its states")
    attention_cnn_dropout: Optional[float] = probability(None, "dropout on the cells of the chart (default: --dropout)")
    attention_relu_after_sum: bool = option(
        False, "a ReLU after the deduction unit's sum too; the chart then takes far more time"
    )


BASELINE = Card(
    "lstm_cky_baseline",
    CKYBaselineConfig,
    WATANABE,
    "attention to the words only: the baseline",
    # The paper says nothing of them.
    InitialValues({"*.attention.units.*": by_inputs, "*": uniform(0.1)}),
    widths=EQUAL,
)


@register_architecture(BASELINE)
class CKYBaselineModel(RecurrentModel):
    """ANMT: residual LSTM stacks that meet in a sum, two input-feeding LSTM layers, dot-product attention."""

    @classmethod
    def build_attention(cls, config: CKYBaselineConfig) -> AttentionMechanism:
        return DotAttention(config.decoder_hidden_size, config.encoder_hidden_size)

    @classmethod
    def build_networks(
        cls, config: CKYBaselineConfig, target_vocabulary: int
    ) -> tuple[TwoStackEncoder, InputFeedingDecoder]:
        encoder = two_stack_encoder(config, residual=True, dropout_between=True)
        return encoder, InputFeedingDecoder(
            cls.build_attention(config), initial_state=reverse_initial_state, state_first=True, **decoder_sizes(config)
        )


@register_architecture(
    replace(
        BASELINE,
        name="lstm_cky_attention",
        config=CKYConfig,
        summary="attention to the words and to every span of them, filled by convolutions as a CKY chart",
    )
)
class CKYModel(CKYBaselineModel):
    """The same with attention to the words and to every span of them."""

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
