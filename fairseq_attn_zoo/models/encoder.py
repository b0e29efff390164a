"""fairseq's side of the encoder: left-padded token ids in, the memory that attention reads out.

fairseq's left-padded sources become right-padded here; and in beam search the memory of a sentence is kept once, however
many hypotheses it has.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from fairseq.models import FairseqEncoder
from torch import Tensor, nn

from ..decoders import DecoderState, map_tensors
from ..dropout import Dropout
from ..encoders import EncoderOutput, RecurrentEncoder, TwoStackEncoder


class SentenceMemory(NamedTuple):
    """The sources as the decoder sees them. Every tensor has one row per sentence, also in beam search."""

    memory: Any  # of RecurrentDecoder.begin
    state: DecoderState  # before the first target word
    given_positions: Tensor  # B x S: where each position of src_tokens as given stands in the right-padded order


class ZooEncoder(FairseqEncoder):
    """Embeds and encodes sources, and has the decoder make of them the memory that attention reads, once per sentence.

    fairseq asks the encoder alone for what beam search keeps of a sentence. So the encoder calls ``begin``, the method of
    that name of the network that will decode; it does not own that network, whose parameters stay the decoder's.
    """

    def __init__(
        self,
        dictionary,
        embed_tokens: nn.Embedding,
        network: RecurrentEncoder | TwoStackEncoder,
        begin: Callable[[EncoderOutput, Tensor], tuple[Any, DecoderState]],
        dropout_in: float,
        max_source_positions: int,
    ) -> None:
        super().__init__(dictionary)
        self.embed_tokens = embed_tokens
        self.network = network
        self.begin = begin
        self.dropout_in = Dropout(dropout_in)
        self.max_source_positions = max_source_positions

    def forward(self, src_tokens: Tensor, src_lengths: Tensor | None = None, **unused) -> dict[str, Any]:
        """Encode.

        Args:
            src_tokens: B x S, padded on the left, on the right or on both sides, sentences in any order of length
            src_lengths: not read; the lengths are taken from the padding

        Returns:
            ``sentences``, a :class:`SentenceMemory` of B rows, and ``owners``, which of them each hypothesis reads

        Raises:
            ValueError: if S is larger than ``max_source_positions``
        """
        if src_tokens.size(1) > self.max_source_positions:
            raise ValueError(
                f"a source of {src_tokens.size(1)} tokens is longer than the model's maximum of "
                f"{self.max_source_positions}; split it, or raise --max-source-positions (and "
                "max_source_positions in --model-overrides for a trained model)"
            )
        padding = src_tokens.eq(self.dictionary.pad())
        width = src_tokens.size(1)
        left_padding = padding.long().cumprod(dim=1).sum(dim=1, keepdim=True)  # B x 1
        positions = torch.arange(width, device=src_tokens.device)  # S
        right_padded = (positions + left_padding) % width  # B x S: where the word at each position was given
        padding = padding.gather(1, right_padded)
        embedded = self.dropout_in(self.embed_tokens(src_tokens.gather(1, right_padded)))
        memory, state = self.begin(self.network(embedded, padding), padding)
        return {
            "sentences": SentenceMemory(memory, state, (positions - left_padding) % width),
            "owners": torch.arange(src_tokens.size(0), device=src_tokens.device),
        }

    def reorder_encoder_out(self, encoder_out: dict[str, Any], new_order: Tensor) -> dict[str, Any]:
        """Follow the beam search: hypothesis n of the new order is hypothesis ``new_order[n]`` of the old.

        The hypotheses of one sentence stand side by side, equally many for each, so that no memory is ever copied for a
        hypothesis. Starting a beam, and permuting hypotheses within their sentences, touch no tensor; finished
        sentences lose their rows.
        """
        memory, owners = encoder_out["sentences"], encoder_out["owners"]
        sentences = owners[new_order]
        if torch.equal(sentences, owners):  # what most steps of a beam ask for
            return encoder_out
        rows, counts = sentences.unique_consecutive(return_counts=True)
        if counts.numel() and (counts != counts[0]).any():  # not a beam's order: one row a hypothesis then
            rows, counts = sentences, torch.ones_like(sentences)
        if not torch.equal(rows, torch.arange(memory.given_positions.size(0), device=rows.device)):
            memory = map_tensors(lambda tensor: tensor.index_select(0, rows), memory)
        owners = torch.arange(rows.size(0), device=rows.device).repeat_interleave(counts)
        return {"sentences": memory, "owners": owners}

    def max_positions(self) -> int:
        """Longest source in tokens, the final end-of-sentence included."""
        return self.max_source_positions
