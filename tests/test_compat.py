"""The patches: what fairseq loses or cannot read without them."""

import argparse
import errno
import os
import zipfile

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.data import data_utils

from fairseq_attn_zoo import compat
from fairseq_attn_zoo.compat.checkpoints import whole_checkpoint


@pytest.mark.parametrize("sentences", [1, 7, 8, 50, 53])
@pytest.mark.parametrize("multiple", [1, 8])
@pytest.mark.parametrize("limits", [{"max_tokens": 40}, {"max_sentences": 16}])
def test_every_sentence_is_in_exactly_one_batch(sentences, multiple, limits):
    indices, sizes = np.arange(sentences), np.full(sentences, 4)
    for lengths in ({"num_tokens_vec": sizes}, {}):
        batches = data_utils.batch_by_size(
            indices, num_tokens_fn=lambda _: 4, required_batch_size_multiple=multiple, **limits, **lengths
        )
        assert np.concatenate(batches).tolist() == indices.tolist()


def test_batches_stay_within_their_limits():
    lengths = np.sort(np.random.default_rng(1).integers(1, 12, 101))
    batches = data_utils.batch_by_size(
        np.arange(101),
        num_tokens_fn=lambda index: lengths[index],
        num_tokens_vec=lengths,
        max_tokens=60,
        required_batch_size_multiple=8,
    )
    assert max(len(batch) * lengths[batch].max() for batch in batches) <= 60


def test_no_sentences_make_no_batches():
    assert data_utils.batch_by_size([], num_tokens_fn=len, max_tokens=10, required_batch_size_multiple=8) == []


def test_patches_are_applied_once():
    patched = data_utils.batch_by_size
    compat.apply()
    assert data_utils.batch_by_size is patched


def test_a_checkpoint_with_the_command_line_in_it_is_read(tmp_path):
    path = tmp_path / "checkpoint.pt"
    torch.save({"args": argparse.Namespace(arch="lstm"), "model": {"weight": torch.ones(2)}}, path)
    assert torch.load(path)["args"].arch == "lstm"


def test_a_checkpoint_with_the_counts_of_bleu_in_it_is_read(tmp_path):
    path = tmp_path / "checkpoint.pt"
    torch.save({"extra_state": {"counts": np.array([3, 2, 1, 0])}}, path)
    assert torch.load(path)["extra_state"]["counts"].tolist() == [3, 2, 1, 0]


class RunsCodeWhenLoaded:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_a_checkpoint_that_would_run_code_is_refused_and_runs_none(tmp_path):
    path, trace = tmp_path / "checkpoint.pt", tmp_path / "ran"
    torch.save({"args": RunsCodeWhenLoaded(trace), "model": {}}, path)
    with pytest.raises(ValueError, match="checkpoint.pt was refused and nothing in it was run: it holds .*system"):
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    assert not trace.exists()


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_a_checkpoint_that_was_cut_off_is_named(tmp_path, share):
    path = tmp_path / "checkpoint.pt"
    torch.save({"args": None, "model": {"weight": torch.ones(1000)}}, path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match="checkpoint.pt is not a whole checkpoint"):
        checkpoint_utils.load_checkpoint_to_cpu(str(path))


def zipped(folder, data: bytes):
    """A checkpoint whose archive is whole, but not what was pickled into it."""
    torch.save({"model": {"weight": torch.ones(3)}}, folder / "whole.pt")
    with zipfile.ZipFile(folder / "whole.pt") as whole, zipfile.ZipFile(folder / "checkpoint.pt", "w") as changed:
        for name in whole.namelist():
            changed.writestr(name, data if name.endswith("data.pkl") else whole.read(name))


@pytest.mark.parametrize(
    "content, words",
    [
        (b"ein satz\nnoch einer\n", "is no checkpoint but some other file"),
        (b"(dp0\n.", "is no checkpoint but some other file"),
        (b"\x7fELF\x02\x01", "is no checkpoint but some other file"),
        (b"\x80\x02}q\x00.", "is not a whole checkpoint"),
        (b"\x80\x04\x95\xff", "is not a whole checkpoint"),
        (b"PK\x03\x04", "is not a whole checkpoint"),
    ],
)
def test_what_is_no_checkpoint_is_called_so(tmp_path, content, words):
    (tmp_path / "checkpoint.pt").write_bytes(content)
    with pytest.raises(ValueError, match=rf"{tmp_path}/checkpoint\.pt {words}"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "checkpoint.pt"))


@pytest.mark.parametrize("data", [b"", b".", b"\x80\x02}", b"\x80\x02K\x01K\x02s.", b"\x80\x02h\x07.", b"\xff" * 50])
def test_a_damaged_pickle_is_named(tmp_path, data):
    zipped(tmp_path, data)
    with pytest.raises(ValueError, match=rf"{tmp_path}/checkpoint\.pt is not a whole checkpoint"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "checkpoint.pt"))


@pytest.mark.parametrize("found", [[1, 2], {"weight": torch.ones(2)}, torch.ones(2)])
def test_a_file_of_pytorch_without_a_model_is_called_so(tmp_path, found):
    torch.save(found, tmp_path / "checkpoint.pt")
    with pytest.raises(ValueError, match=r"checkpoint\.pt is no checkpoint of a model"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "checkpoint.pt"))


@pytest.mark.parametrize(
    "number, advice",
    [(errno.ENOSPC, "make room"), (errno.EACCES, "make the folder writable"), (errno.EIO, "see to that")],
)
def test_the_advice_fits_the_error(tmp_path, number, advice):
    path = tmp_path / "checkpoint_last.pt"
    path.write_text("before")
    said = f"could not be written .*{os.strerror(number)}.*: {advice}, then"
    with pytest.raises(OSError, match=said) as raised, whole_checkpoint(str(path)):
        raise OSError(number, os.strerror(number))
    assert ("make room" in str(raised.value)) == (number == errno.ENOSPC)
    assert path.read_text() == "before"


def test_a_flag_that_is_newer_than_the_checkpoint_can_be_overridden(tmp_path):
    path = tmp_path / "checkpoint.pt"
    config = {"model": {"_name": "gru_rnnsearch", "dropout": 0.1}, "task": {"data": "here"}}
    history = {"optimizer_name": "FairseqAdam", "lr_scheduler_state": {}, "num_updates": 0}
    torch.save({"cfg": config, "optimizer_history": [history], "extra_state": {"train_iterator": {}}}, path)
    overrides = {"dropout": 0.2, "compile_decoder": True, "data": "there", "no_such_flag": 1}
    found = checkpoint_utils.load_checkpoint_to_cpu(str(path), overrides)["cfg"]
    assert found.model == {"_name": "gru_rnnsearch", "dropout": 0.2, "compile_decoder": True}
    assert found.task.data == "there"


def parsed(*flags: str) -> argparse.Namespace:
    flags = ("data", "--arch", "gru_rnnsearch", "--optimizer", "adam", *flags)
    return options.parse_args_and_arch(options.get_training_parser(), list(flags))


@pytest.mark.parametrize(
    "flags, bf16, tpu",
    [
        ([], False, False),
        (["--bf16"], True, False),
        (["--memory-efficient-bf16"], True, False),
        (["--tpu"], False, True),
        (["--bf16", "--tpu"], True, True),
    ],
    ids=["neither", "bf16", "memory-efficient", "tpu", "both"],
)
def test_a_tpu_is_asked_for_with_its_own_flag(flags, bf16, tpu):
    args = parsed(*flags)
    assert (args.bf16, args.tpu) == (bf16, tpu)


def test_two_half_precisions_are_refused_in_one_line():
    with pytest.raises(ValueError, match="--bf16 and --fp16 are two precisions; leave one of them out"):
        parsed("--bf16", "--memory-efficient-fp16")


def test_the_help_of_bf16_promises_no_tpu():
    (explained,) = (
        action.help for action in options.get_training_parser()._actions if "--bf16" in action.option_strings
    )
    assert "bfloat16" in explained and "tpu" not in explained
