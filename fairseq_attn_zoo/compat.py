"""What today's Python and PyTorch need of fairseq 0.12: each patch with its reason, nothing more."""

import argparse
import functools
import pickle
import re

import numpy as np
import torch
from fairseq import checkpoint_utils
from fairseq.data import data_utils
from fairseq.tasks import FairseqTask


def apply() -> None:
    """Apply every patch once."""
    for patch in PATCHES:
        patch()


def allow_checkpoint_types() -> None:
    """Let ``torch.load`` read fairseq's checkpoints, and nothing more than those.

    Since PyTorch 2.6 it refuses every type that is not plain data. Besides plain data, fairseq's checkpoints hold the
    ``argparse.Namespace`` of the command line (architectures of fairseq's old style, such as ``lstm``) and NumPy arrays
    of integers (the counts of ``--eval-bleu``). A checkpoint that asks for any other type is still refused, before any
    of its code runs.
    """
    counts = np.zeros(1, dtype=np.int64)
    rebuild_array = counts.__reduce__()[0]
    torch.serialization.add_safe_globals([argparse.Namespace, rebuild_array, np.ndarray, np.dtype, type(counts.dtype)])


def name_bad_checkpoints() -> None:
    """Say in one line which checkpoint was refused or is broken, and what to do.

    PyTorch's own words advise to turn the check off, which is the one thing not to do with a stranger's file, and do
    not name the file.
    """
    if hasattr(checkpoint_utils.load_checkpoint_to_cpu, "names_bad_checkpoints"):
        return
    original = checkpoint_utils.load_checkpoint_to_cpu

    @functools.wraps(original)
    def load_checkpoint_to_cpu(path, *args, **kwargs):
        try:
            return original(path, *args, **kwargs)
        except pickle.UnpicklingError as error:
            wanted = re.search(r"GLOBAL (\S+)", str(error))
            what = wanted.group(1) if wanted else "something that is not plain data"
            raise ValueError(
                f"{path} was refused and nothing in it was run: it holds {what}, which fairseq's checkpoints do not "
                "hold; use a checkpoint that fairseq-train wrote, from a source you trust"
            ) from None
        except (EOFError, RuntimeError, OSError) as error:
            cut_off = (
                isinstance(error, EOFError) or "PytorchStreamReader" in str(error) or "Invalid argument" in str(error)
            )
            if not cut_off:
                raise
            raise ValueError(
                f"{path} is not a whole checkpoint (the file was cut off or damaged); use another one, for example "
                "checkpoint_last.pt of the same folder, or copy it again"
            ) from None

    load_checkpoint_to_cpu.names_bad_checkpoints = True
    checkpoint_utils.load_checkpoint_to_cpu = load_checkpoint_to_cpu


def keep_last_batch() -> None:
    """Give back the sentences that fairseq loses.

    When ``--required-batch-size-multiple`` (8 unless told otherwise) does not divide the last batch, this version of
    fairseq drops that batch whole: 50 sentences in, 48 translations out (fairseq's issue 5036). 0.12.2 kept it.
    """
    if hasattr(data_utils.batch_by_size, "keeps_last_batch"):
        return
    original = data_utils.batch_by_size

    @functools.wraps(original)
    def batch_by_size(indices, *args, **kwargs):
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

    batch_by_size.keeps_last_batch = True
    data_utils.batch_by_size = batch_by_size


def resume_with_the_same_batches() -> None:
    """Let a training that goes on read the batches that it would have read without the stop.

    fairseq composes the batches once, in the epoch in which its process starts, and seeds them with that epoch. A run
    that resumes in a later epoch would compose other ones: it would not equal an uninterrupted run, and one stopped
    within an epoch would read some sentences twice and others not at all.
    """
    if hasattr(FairseqTask.get_batch_iterator, "resumes_with_the_same_batches"):
        return
    original = FairseqTask.get_batch_iterator

    @functools.wraps(original)
    def get_batch_iterator(self, dataset, *args, epoch=1, **kwargs):
        cached = self.dataset_to_epoch_iter.get(dataset)
        iterator = original(self, dataset, *args, epoch=1, **kwargs)
        if iterator is not cached:  # a cached one keeps its place
            dataset.set_epoch(epoch)
            iterator.epoch = max(epoch, 1)
        return iterator

    get_batch_iterator.resumes_with_the_same_batches = True
    FairseqTask.get_batch_iterator = get_batch_iterator


PATCHES = (allow_checkpoint_types, name_bad_checkpoints, keep_last_batch, resume_with_the_same_batches)
