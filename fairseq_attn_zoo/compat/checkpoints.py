"""Checkpoints: what may be in one, what is said of a bad one, and how one is written."""

import argparse
import contextlib
import errno
import importlib
import pickle
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.trainer import Trainer
from omegaconf import DictConfig, open_dict

from ..files import written_aside
from .patching import patch


def allow_checkpoint_types() -> None:
    """Let ``torch.load`` read fairseq's checkpoints, and nothing more than those.

    Since PyTorch 2.6 it refuses every type that is not plain data. Besides plain data, fairseq's checkpoints hold the
    ``argparse.Namespace`` of the command line (architectures of fairseq's old style, such as ``lstm``) and NumPy arrays
    of integers (the counts of ``--eval-bleu``). A checkpoint that asks for any other type is still refused, before any
    of its code runs.
    """
    counts = np.zeros(1, dtype=np.int64)
    rebuild_array: Any = counts.__reduce__()[0]
    torch.serialization.add_safe_globals([argparse.Namespace, rebuild_array, np.ndarray, np.dtype, type(counts.dtype)])


def name_bad_checkpoints() -> None:
    """Say in one line which checkpoint was refused, is broken or has parameters that are no numbers, and what to do.

    PyTorch's own words advise to turn the check off, which is the one thing not to do with a stranger's file, and do
    not name the file. Of numbers that are not finite fairseq says nothing at all.
    """

    @patch(checkpoint_utils, "load_checkpoint_to_cpu")
    def load_checkpoint_to_cpu(original, path, *args, **kwargs):
        try:
            state = original(path, *args, **kwargs)
        except (FileNotFoundError, IsADirectoryError, PermissionError, MemoryError):
            raise
        except Exception:  # a damaged pickle can raise any
            wrong = what_is_wrong(path)
            if wrong is None:
                raise
            raise ValueError(wrong) from None
        if architecture_of(state) in our_architectures():
            refuse_infinite(path, state.get("model") or {})
        return state


def what_is_wrong(path: str) -> str | None:
    """Why a file cannot be read as a checkpoint, in one line; None if it can. Nothing in it is run."""
    with open(path, "rb") as file:
        begin = file.read(2)
    if begin and not b"PK".startswith(begin) and not begin.startswith(b"\x80"):  # a zip archive, or a pickle
        return f"{path} is no checkpoint but some other file; name one that fairseq-train wrote"
    try:
        state = torch.load(path, map_location="cpu")
    except Exception as error:
        wanted = re.search(r"GLOBAL (\S+)", str(error)) if isinstance(error, pickle.UnpicklingError) else None
        if wanted:
            return (
                f"{path} was refused and nothing in it was run: it holds {wanted.group(1)}, which fairseq's checkpoints "
                "do not hold; use a checkpoint that fairseq-train wrote, from a source you trust"
            )
        if "can't allocate memory" in str(error):
            return None
        return (
            f"{path} is not a whole checkpoint (the file was cut off or damaged); use another one, for example "
            "checkpoint_last.pt of the same folder, or copy it again"
        )
    if not isinstance(state, dict) or "model" not in state:
        return f"{path} is no checkpoint of a model; name one that fairseq-train wrote"
    return None


def architecture_of(state: dict) -> str | None:
    """The name of the architecture in a checkpoint, of fairseq's newer form or of its older one."""
    config = (state.get("cfg") or {}).get("model")
    return getattr(config, "_name", None) or getattr(state.get("args"), "arch", None)


def our_architectures() -> Collection[str]:
    from ..models import ARCHITECTURES  # which import this package

    return ARCHITECTURES


def refuse_infinite(path: str, parameters: Mapping[str, torch.Tensor]) -> None:
    """Refuse a model that can only answer nonsense.

    Raises:
        ValueError: one line that names the parameters that are NaN or infinite
    """
    wrong = [name for name, value in parameters.items() if value.is_floating_point() and not value.isfinite().all()]
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise ValueError(
            f"{path} cannot be used: {', '.join(wrong[:3])}{more} hold NaN or infinite numbers, so the training diverged "
            "or the file was changed; use an earlier checkpoint, or train with a smaller --lr or with --clip-norm"
        )


def override_newer_flags() -> None:
    """Let ``--model-overrides`` set a flag that is newer than the checkpoint.

    fairseq overrides what the checkpoint's config holds and passes over the rest without a word.
    """

    @patch(checkpoint_utils, "load_checkpoint_to_cpu")
    def load_checkpoint_to_cpu(original, path, arg_overrides=None, load_on_all_ranks=False):
        state = original(path, arg_overrides, load_on_all_ranks)
        model = (state.get("cfg") or {}).get("model")
        if arg_overrides and isinstance(model, DictConfig):
            flags = getattr(MODEL_DATACLASS_REGISTRY.get(model.get("_name")), "__dataclass_fields__", {})
            with open_dict(model):
                newer = flags.keys() - model.keys()
                model.update({name: value for name, value in arg_overrides.items() if name in newer})
        return state


def save_checkpoints_whole() -> None:
    """Never leave half a file under a checkpoint's name, and say what to do when the disk is full.

    fairseq writes a checkpoint aside and renames it, but then copies it byte by byte over ``checkpoint_last.pt``: a run
    that is killed there cannot resume. When writing fails it writes again behind the half that is there.
    """

    @patch(checkpoint_utils, "torch_persistent_save")
    def torch_persistent_save(original, obj, filename, async_write=False):
        if async_write or not PathManager.supports_rename(filename):
            return original(obj, filename, async_write)
        with whole_checkpoint(filename) as aside, open(aside, "wb") as file:
            torch.save(obj, file)

    @patch(PathManager, "copy")
    def copy(original, src_path, dst_path, overwrite=False):
        if not PathManager.supports_rename(dst_path):
            return original(src_path, dst_path, overwrite)
        with whole_checkpoint(dst_path) as aside:
            shutil.copyfile(src_path, aside)
        return True


ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "make the folder writable"),
    errno.ENOENT: "let nothing else remove or rename that folder or what is in it",
}


@contextlib.contextmanager
def whole_checkpoint(path: str) -> Iterator[str]:
    """:func:`written_aside` for a checkpoint.

    Raises:
        OSError: if it could not be written; what stood at ``path`` is still there
    """
    try:
        with written_aside(path) as aside:
            yield str(aside)
    except (OSError, RuntimeError) as error:  # PyTorch's writer turns the first into the second
        cause = error if isinstance(error, OSError) else error.__context__
        number = cause.errno if isinstance(cause, OSError) else None
        reason = (isinstance(cause, OSError) and cause.strerror) or str(error).split("\n")[0]
        advice = ADVICE.get(number or 0, "see to that")
        raise OSError(
            f"{path} could not be written ({reason}); the checkpoints saved before it are whole: {advice}, then start "
            "the same command again, and it goes on from the last of them"
        ) from None


def keep_counting_bad_epochs() -> None:
    """Let a training that goes on stop, and slow down, where it would have without the stop.

    fairseq counts the epochs without progress of ``--patience`` in the process only; of ``reduce_lr_on_plateau`` it saves
    the best loss but not the count, and saves before the scheduler has heard of the epoch's loss.
    """

    @patch(Trainer, "save_checkpoint")
    def save_checkpoint(original, self, filename, extra_state):
        plateau = plateau_of(self)
        counts = {
            "patience": vars(should_stop_early()).copy(),
            "plateau": plateau and {name: plateau.state_dict()[name] for name in PLATEAU_COUNTS},
        }
        return original(self, filename, {**extra_state, "counts": counts})

    @patch(checkpoint_utils, "load_checkpoint")
    def load_checkpoint(original, cfg, trainer, **arguments):
        extra_state, iterator = original(cfg, trainer, **arguments)
        counts = (extra_state or {}).get("counts")
        if counts is None or cfg.reset_optimizer or cfg.reset_lr_scheduler or cfg.reset_meters:
            return extra_state, iterator
        vars(should_stop_early()).update(counts["patience"])
        plateau = plateau_of(trainer)
        if plateau and counts["plateau"]:
            plateau.load_state_dict(counts["plateau"])
            if iterator.iterations_in_epoch == 0:  # saved at the end of an epoch
                trainer.lr_step(iterator.epoch - 1, extra_state["val_loss"])
        return extra_state, iterator


PLATEAU_COUNTS = ("best", "num_bad_epochs", "cooldown_counter", "last_epoch")


def plateau_of(trainer: Trainer) -> torch.optim.lr_scheduler.ReduceLROnPlateau | None:
    """PyTorch's scheduler inside fairseq's, if it is that one."""
    scheduler = getattr(trainer.lr_scheduler, "lr_scheduler", None)
    return scheduler if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau) else None


def should_stop_early() -> Callable:
    """The function of the running fairseq-train that keeps the count of ``--patience`` in its attributes."""
    running = sys.modules["__main__"]
    found = getattr(running, "should_stop_early", None)
    return found if callable(found) else importlib.import_module("fairseq_cli.train").should_stop_early
