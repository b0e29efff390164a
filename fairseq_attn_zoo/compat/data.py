"""Data: every line once, every sentence once, and after a stop the batches that would have come without it."""

import contextlib
import functools
import sys
from collections.abc import Iterator

import numpy as np
from fairseq import file_chunker_utils
from fairseq.data import data_utils
from fairseq.tasks import FairseqTask

from .patching import patch


def end_lines_at_line_feeds() -> None:
    """Read text as everything else that handles parallel text does: a line ends at a line feed and nowhere else.

    fairseq reads files with Python's "universal newlines": a stray carriage return inside a sentence ends the line
    there, and every line after it stands beside the wrong translation. And it stops, far from the line, at the first
    byte that is not UTF-8; such bytes are read as U+FFFD.
    """
    if hasattr(file_chunker_utils, "open"):
        return
    file_chunker_utils.open = functools.partial(open, newline="\n", errors="replace")  # fairseq-preprocess
    for name in ("fairseq_cli.interactive", "__main__"):
        names = vars(sys.modules[name]) if name in sys.modules else {}
        if getattr(names.get("buffered_read"), "__module__", None) == name:
            names["buffered_read"] = buffered_read


def buffered_read(input: str, buffer_size: int) -> Iterator[list[str]]:
    """The lines of a file, or of the standard input ("-"), ``buffer_size`` at a time."""
    with contextlib.nullcontext(sys.stdin.buffer) if input == "-" else open(input, "rb") as file:
        buffer = []
        for line in file:
            buffer.append(line.decode("utf-8", errors="replace").strip())
            if len(buffer) >= buffer_size:
                yield buffer
                buffer = []
        if buffer:
            yield buffer


def keep_last_batch() -> None:
    """Give back the sentences that fairseq loses.

    When ``--required-batch-size-multiple`` (8 unless told otherwise) does not divide the last batch, this version of
    fairseq drops that batch whole: 50 sentences in, 48 translations out (fairseq's issue 5036). 0.12.2 kept it.
    """

    @patch(data_utils, "batch_by_size")
    def batch_by_size(original, indices, *args, **kwargs):
        indices = np.fromiter(indices, dtype=np.int64) if not isinstance(indices, np.ndarray) else indices
        if len(indices) == 0:
            return []
        batches = list(original(indices, *args, **kwargs))
        if kwargs.get("fixed_shapes") is None:
            # Batches are consecutive slices of the indices: what no batch holds is the batch that was dropped.
            dropped = indices[sum(map(len, batches)) :]
            if len(dropped):
                batches.append(dropped)
        return batches


def resume_with_the_same_batches() -> None:
    """Let a training that goes on read the batches that it would have read without the stop.

    fairseq composes the batches once, in the epoch in which its process starts, and seeds them with that epoch. A run
    that resumes in a later epoch would compose other ones: it would not equal an uninterrupted run, and one stopped
    within an epoch would read some sentences twice and others not at all.
    """

    @patch(FairseqTask, "get_batch_iterator")
    def get_batch_iterator(original, self, dataset, *args, epoch=1, **kwargs):
        cached = self.dataset_to_epoch_iter.get(dataset)
        iterator = original(self, dataset, *args, epoch=1, **kwargs)
        if iterator is not cached:  # a cached one keeps its place
            dataset.set_epoch(epoch)
            iterator.epoch = max(epoch, 1)
        return iterator
