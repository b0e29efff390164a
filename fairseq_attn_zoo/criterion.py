"""``--criterion chunked_cross_entropy``: fairseq's cross-entropies without the logits of a whole batch in memory."""

from dataclasses import dataclass, field

import torch
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.dataclass import FairseqDataclass
from omegaconf import II
from torch import nn

from .loss import chunked_cross_entropy

MEBIBYTE = 2**20


@dataclass
class ChunkedCrossEntropyConfig(FairseqDataclass):
    label_smoothing: float = field(
        default=0.0, metadata={"help": "epsilon of label smoothing; 0 is plain cross-entropy"}
    )
    report_accuracy: bool = field(default=False, metadata={"help": "report how many words have the largest logit"})
    chunk_mib: int = field(default=16, metadata={"help": "MiB of logits that are in memory at once"})
    sentence_avg: bool = II("optimization.sentence_avg")


@register_criterion("chunked_cross_entropy", dataclass=ChunkedCrossEntropyConfig)
class ChunkedCrossEntropyCriterion(FairseqCriterion):
    """``cross_entropy``, or with ``--label-smoothing`` ``label_smoothed_cross_entropy``: the same loss and gradients.

    Only real target words are projected to the vocabulary, a chunk at a time.

    Raises:
        ValueError: if a flag is out of range
    """

    def __init__(self, task, sentence_avg, label_smoothing, report_accuracy, chunk_mib):
        super().__init__(task)
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"--label-smoothing is {label_smoothing}; it must be at least 0 and below 1")
        if chunk_mib < 1:
            raise ValueError(f"--chunk-mib is {chunk_mib}; it must be at least 1")
        self.sentence_avg = sentence_avg
        self.label_smoothing = label_smoothing
        self.report_accuracy = report_accuracy
        self.chunk_bytes = chunk_mib * MEBIBYTE

    def forward(self, model, sample, reduce=True):
        """fairseq's loss, sample size and logging output.

        Raises:
            ValueError: if the model's output layer is not a matrix that can be read, or if ``reduce`` is False: the loss
                of single words is not kept
        """
        if not reduce:
            raise ValueError("chunked_cross_entropy sums over words; use cross_entropy for the loss of single words")
        output = getattr(model.decoder, "output_projection", None)
        if not isinstance(output, nn.Linear):
            raise ValueError(
                "chunked_cross_entropy is for models whose decoder has a linear output_projection, as all of "
                "fairseq_attn_zoo have; use cross_entropy or label_smoothed_cross_entropy here"
            )
        features, _ = model(**sample["net_input"], features_only=True)
        target = model.get_targets(sample, None)
        real = target.ne(self.padding_idx)
        words, targets = features[real], target[real]
        bytes_a_word = output.weight.size(0) * max(words.element_size(), 4)
        chunk = max(1, self.chunk_bytes // bytes_a_word)
        found = chunked_cross_entropy(
            words, output.weight, output.bias, targets, self.label_smoothing, chunk, self.report_accuracy
        )
        sample_size = target.size(0) if self.sentence_avg else sample["ntokens"]
        logging_output = {
            "loss": found.loss.data,
            "nll_loss": found.nll.data,
            "ntokens": sample["ntokens"],
            "nsentences": target.size(0),
            "sample_size": sample_size,
        }
        if self.report_accuracy:
            logging_output |= {"n_correct": found.correct, "total": torch.tensor(targets.numel())}
        return found.loss, sample_size, logging_output

    @classmethod
    def reduce_metrics(cls, logging_outputs) -> None:
        LabelSmoothedCrossEntropyCriterion.reduce_metrics(logging_outputs)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True
