"""What today's Python and PyTorch need of fairseq 0.12: each patch with its reason, nothing more."""

import argparse
import functools

import numpy as np
import torch
from fairseq.data import data_utils


def apply() -> None:
    """Apply every patch once."""
    allow_checkpoint_types()
    keep_last_batch()


def allow_checkpoint_types() -> None:
    """Let ``torch.load`` read fairseq's checkpoints, and nothing more than those.

    Since PyTorch 2.6 it refuses every type that is not plain data. Besides plain data, fairseq's checkpoints hold one
    type: the ``argparse.Namespace`` of the command line. A checkpoint that asks for any other type is still refused,
    before any of its code runs.
    """
    torch.serialization.add_safe_globals([argparse.Namespace])


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
