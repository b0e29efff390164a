"""fairseq's side of the decoder: target ids and the encoder's memory in, logits and attention weights out.

The weights go back into the order of the sources as they were given to the encoder.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from fairseq.models import FairseqIncrementalDecoder
from torch import Tensor, nn

from ..decoders import DecoderState, RecurrentDecoder, TargetWords, compiled_step, map_tensors
from ..dropout import Dropout
from .encoder import SentenceMemory


class DecodingState(NamedTuple):
    """What fairseq's incremental state holds for us between two calls."""

    decoder: DecoderState  # one row per hypothesis
    words: int  # target words read so far


class ZooDecoder(FairseqIncrementalDecoder):
    """Embeds target words, runs the decoder network, and projects its features to the vocabulary.

    ``embed_tokens`` is None for a network that reads the words' ids only.
    """

    def __init__(
        self,
        dictionary,
        embed_tokens: nn.Embedding | None,
        network: RecurrentDecoder,
        output_projection: nn.Linear,
        dropout_in: float,
        max_target_positions: int,
        need_attn_in_training: bool,
        compile_step: bool,
    ) -> None:
        super().__init__(dictionary)
        self.embed_tokens = embed_tokens
        self.network = network
        self.output_projection = output_projection
        self.dropout_in = Dropout(dropout_in)
        self.max_target_positions = max_target_positions
        self.need_attn = True
        self.need_attn_in_training = need_attn_in_training
        self.compile_step = compile_step

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, Any],
        incremental_state: dict[str, Any] | None = None,
        features_only: bool = False,
        need_trace: bool = False,
        **unused,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Predict the word after each target word.

        Args:
            prev_output_tokens: N x T, the target so far, from the beginning of the sentence on
            encoder_out: of :class:`.encoder.ZooEncoder`, for N = B x hypotheses of each sentence
            incremental_state: of fairseq's generator. With it only the words that were not read in earlier calls are
                read, and only their predictions are returned: all T in the first call, one in each later call.
            features_only: return what the output layer reads instead of logits
            need_trace: return every weight of the mechanism too

        Returns:
            logits, N x T x vocabulary, and ``{"attn": [weights]}``, weights N x T x S in the order of ``src_tokens``,
            or ``[None]`` when nobody reads them (see ``need_attn``) or the architecture has no attention. With
            ``need_trace`` also ``"trace"``, a :class:`fairseq_attn_zoo.attention.Traced` by name, source positions in the order
            of ``src_tokens``.
        """
        times = self.times_the_same(prev_output_tokens, encoder_out, incremental_state)
        features, extra = self.extract_features(prev_output_tokens[::times], encoder_out, incremental_state, need_trace)
        output = features if features_only else self.output_layer(features)
        if times > 1:
            past = self.get_incremental_state(incremental_state, "past")
            self.set_incremental_state(incremental_state, "past", repeat_rows(past, times))
            output, extra = repeat_rows(output, times), repeat_rows(extra, times)
        return output, extra

    def times_the_same(
        self, prev_output_tokens: Tensor, encoder_out: dict[str, Any], incremental_state: dict[str, Any] | None
    ) -> int:
        """How many hypotheses of each sentence one row can stand for: all at the start of a beam, else one."""
        # In training each has its own dropout.
        if (
            self.training
            or incremental_state is None
            or self.get_incremental_state(incremental_state, "past") is not None
        ):
            return 1
        hypotheses = prev_output_tokens.size(0) // encoder_out["sentences"].given_positions.size(0)
        first = prev_output_tokens[::hypotheses]
        return hypotheses if torch.equal(repeat_rows(first, hypotheses), prev_output_tokens) else 1

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, Any],
        incremental_state: dict[str, Any] | None = None,
        need_trace: bool = False,
        **unused,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Like :meth:`forward`, but returns what the output layer reads, N x T x F."""
        sentences, past = encoder_out["sentences"], None
        if incremental_state is not None:
            past = self.get_incremental_state(incremental_state, "past")
        if past is None:
            past = self.start(sentences, prev_output_tokens.size(0) // sentences.given_positions.size(0))
        features, extra, past = self.read(prev_output_tokens[:, past.words :], sentences, past, need_trace)
        if incremental_state is not None:
            self.set_incremental_state(incremental_state, "past", past)
        return features, extra

    def start(self, sentences: SentenceMemory, hypotheses: int = 1) -> DecodingState:
        """The state before the first word, with so many hypotheses of each sentence."""
        return DecodingState(repeat_rows(sentences.state, hypotheses), words=0)

    def read(
        self, new_words: Tensor, sentences: SentenceMemory, past: DecodingState, need_trace: bool = False
    ) -> tuple[Tensor, dict[str, Any], DecodingState]:
        """Read words that follow those of ``past``.

        Args:
            new_words: N x T, for N = B x hypotheses of each sentence, which stand side by side
            sentences: of :class:`.encoder.ZooEncoder`, B rows
            past: before the first of these words, N rows
            need_trace: as in :meth:`forward`

        Returns:
            what the output layer reads, N x T x F; the ``extra`` of :meth:`forward`; the state after the last word
        """
        hypotheses = new_words.size(0) // sentences.given_positions.size(0)
        # A network that reads the words' ids only is given none.
        embedded: Any = None if self.embed_tokens is None else self.dropout_in(self.embed_tokens(new_words))
        need_weights = self.need_attn_in_training if self.training else self.need_attn
        one_more_word = past.words > 0 and new_words.size(1) == 1 and not self.training
        words = TargetWords(new_words.contiguous(), embedded)
        network = partial(compiled_step, self.network) if self.compile_step and one_more_word else self.network
        output = network(words, sentences.memory, past.decoder, need_weights, need_trace)

        extra: dict[str, Any] = {"attn": [None]}
        if output.weights is not None:
            extra["attn"] = [as_given(output.weights, repeat_rows(sentences.given_positions, hypotheses))]
        if output.trace is not None:
            given_positions = repeat_rows(sentences.given_positions, hypotheses)
            extra["trace"] = {
                name: traced
                if traced.axes.over == "target words"
                else traced.map(lambda values: as_given(values, given_positions))
                for name, traced in output.trace.items()
            }
        return output.features, extra, DecodingState(output.state, past.words + new_words.size(1))

    def output_layer(self, features: Tensor, **unused) -> Tensor:
        """Features N x T x F as logits N x T x vocabulary."""
        return self.output_projection(features)

    def reorder_incremental_state(self, incremental_state: dict[str, Any], new_order: Tensor) -> None:
        """Follow the beam search, as :meth:`.encoder.ZooEncoder.reorder_encoder_out` does for the memory."""
        past = self.get_incremental_state(incremental_state, "past")
        if past is not None:
            reordered = map_tensors(lambda tensor: tensor.index_select(0, new_order), past.decoder)
            self.set_incremental_state(incremental_state, "past", past._replace(decoder=reordered))

    def max_positions(self) -> int:
        """Longest target in tokens, the final end-of-sentence included."""
        return self.max_target_positions

    def make_generation_fast_(self, need_attn: Any = False, **unused) -> None:
        """fairseq's word that the model will only translate now, and whether anyone will read the weights.

        Raises:
            ValueError: if someone will and the architecture has none
        """
        if need_attn and not self.network.has_attention:
            raise ValueError("this architecture has no attention to align words with; leave --print-alignment out")
        self.need_attn = bool(need_attn)


def as_given(weights: Tensor, given_positions: Tensor) -> Tensor:
    """Weights N x T x S x ... of right-padded sources in the order of the sources as they were given, N x S."""
    index = given_positions.view(given_positions.size(0), 1, -1, *[1] * (weights.dim() - 3))
    return weights.gather(2, index.expand_as(weights))


def repeat_rows(value: Any, times: int) -> Any:
    """Repeat every row of every tensor ``times`` times, side by side."""
    if times == 1:
        return value
    return map_tensors(lambda tensor: tensor.repeat_interleave(times, dim=0), value)
