"""The patches: what fairseq loses or cannot read without them."""

import argparse
import os

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.data import data_utils

from fairseq_attn_zoo import compat


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
