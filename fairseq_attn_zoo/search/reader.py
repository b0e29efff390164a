"""A model in beam search: words in, log-probabilities of the next ones out."""

from typing import Any

import torch
from torch import Tensor, nn

from ..decoders import map_tensors

FEW_ROWS = 8  # so many hypotheses, and BLAS is up to twice as fast with the matrix on the left


class Reader:
    """One model reads the hypotheses of one batch, word by word.

    What the model knows of the sources has one row per sentence; what it carries from word to word one row per hypothesis,
    and before the first word one row per sentence.

    Args:
        model: a :class:`~fairseq_attn_zoo.models.base.RecurrentModel` that translates
        net_input: of fairseq's batch
        hypotheses: the most there will be
    """

    def __init__(self, model, net_input: dict[str, Any], hypotheses: int) -> None:
        self.decoder = model.decoder
        self.sentences = model.encoder.forward_torchscript(net_input)["sentences"]
        self.past = self.decoder.start(self.sentences)
        self.hypotheses = hypotheses
        self.buffer: Tensor | None = None  # of logits, which become log-probabilities; lives as long as the batch

    def read(self, words: Tensor, temperature: float) -> tuple[Tensor, Tensor | None]:
        """Read one word of each hypothesis.

        Args:
            words: N
            temperature: that logits are divided by

        Returns:
            log-probabilities of the next words, N x V, float32, overwritten by the next call; the attention, N x S in the
            order of the sources as they were given, or None
        """
        features, extra, self.past = self.decoder.read(words.unsqueeze(1), self.sentences, self.past)
        weights = extra["attn"][0]
        logits = self.logits(features)
        if temperature != 1.0:
            logits = logits.div_(temperature)
        if logits.dtype == torch.float32 and logits.is_cpu:  # in place: half the time, for half the memory
            log_probs = torch.log_softmax(logits, -1, out=logits)
        else:
            log_probs = torch.log_softmax(logits, -1, dtype=torch.float32)
        return log_probs, None if weights is None else weights[:, -1]

    def logits(self, features: Tensor) -> Tensor:
        """Features N x 1 x F as logits N x V, in the buffer where that is possible."""
        layer = self.decoder.output_projection
        changed = type(layer) is not nn.Linear or layer._forward_hooks or layer._forward_pre_hooks
        if changed or torch.is_autocast_enabled(features.device.type) or layer.weight.dtype != features.dtype:
            return self.decoder.output_layer(features)[:, -1].contiguous()
        features = features[:, -1]
        rows, vocabulary = features.size(0), layer.out_features
        if self.buffer is None:
            self.buffer = features.new_empty(self.hypotheses, vocabulary)
        logits = self.buffer[:rows]
        if rows <= FEW_ROWS and features.is_cpu:
            columns = features.t() if rows > 1 else features.t().repeat(1, 2)  # two are faster than one
            logits.copy_(torch.mm(layer.weight, columns).t()[:rows])
            return logits if layer.bias is None else logits.add_(layer.bias)
        if layer.bias is None:
            return torch.mm(features, layer.weight.t(), out=logits)
        return torch.addmm(layer.bias, features, layer.weight.t(), out=logits)

    def follow(self, rows: Tensor | None, sentences: Tensor | None) -> None:
        """Go on with some hypotheses.

        Args:
            rows: of the hypotheses so far, which go on in this order; None for all of them as they are
            sentences: which of them are left; None for all
        """
        if rows is not None:
            decoder = map_tensors(lambda tensor: tensor.index_select(0, rows), self.past.decoder)
            self.past = self.past._replace(decoder=decoder)
        if sentences is not None:
            self.sentences = map_tensors(lambda tensor: tensor.index_select(0, sentences), self.sentences)
