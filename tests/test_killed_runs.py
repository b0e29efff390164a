"""Trainings that are killed or find the disk full: they go on, and end where an uninterrupted one ends, bit for bit."""

import json
import os
import random
import re
import signal
import time
from pathlib import Path

import pytest
import torch
from commands import USER_DIR, server, tiny_model

KILLS = 20
UPDATES_BETWEEN_CHECKPOINTS = 2


def train(arguments: list, log: Path, **harm: int) -> int:
    """The exit status of a training, with something that happens to it (see ``programs/command_server.py``)."""
    server().start("train", arguments, log, **harm)
    return server().wait()


def flags(corpus, folder: Path, updates: int) -> list[str]:
    return [
        *(corpus.data, *USER_DIR, *tiny_model("gru_rnnsearch"), "--dropout", 0.3, "--seed", 1),
        *("--optimizer", "adam", "--lr", 0.01, "--lr-scheduler", "inverse_sqrt", "--warmup-updates", 20),
        *("--max-tokens", 500, "--max-update", updates, "--save-dir", folder, "--no-epoch-checkpoints"),
        *("--valid-subset", "test1"),
        *("--save-interval-updates", UPDATES_BETWEEN_CHECKPOINTS, "--keep-interval-updates", 1),
        *("--log-format", "json", "--log-interval", 1),
    ]


def updates_in(log: Path) -> int:
    """How many updates the log tells of, those that were lost and made again included."""
    return log.read_text(encoding="utf-8").count("| train_inner |") if log.exists() else 0


def assert_equal_checkpoints(found: Path, expected: Path) -> None:
    """Parameters and the optimizer's moments, bit for bit."""
    found, expected = (torch.load(folder / "checkpoint_last.pt", weights_only=False) for folder in (found, expected))
    assert found["model"].keys() == expected["model"].keys()
    for name, values in expected["model"].items():
        assert torch.equal(found["model"][name], values), name
    states = [checkpoint["last_optimizer_state"]["state"] for checkpoint in (found, expected)]
    assert states[0].keys() == states[1].keys()
    for number, moments in states[1].items():
        for name, values in moments.items():
            assert torch.equal(torch.as_tensor(states[0][number][name]), torch.as_tensor(values)), name


def test_a_training_killed_twenty_times_ends_like_one_that_was_not(corpus, tmp_path):
    """Each time after some more updates, at a moment that is random to the millisecond."""
    updates, moments = 200, random.Random(1)
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    assert train(flags(corpus, whole, updates), tmp_path / "whole.log") == 0
    log = tmp_path / "killed.log"
    for _ in range(KILLS):
        wanted = updates_in(log) + moments.randint(1, 2 * UPDATES_BETWEEN_CHECKPOINTS)
        process = server().start("train", flags(corpus, killed, updates), log)
        while updates_in(log) < wanted:
            os.kill(process, 0)  # raises if it has ended of itself
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.02))
        os.kill(process, signal.SIGKILL)
        assert server().wait() == -signal.SIGKILL
    assert updates_in(log) < updates  # the kills came before the end
    assert train(flags(corpus, killed, updates), log) == 0
    assert "Loaded checkpoint" in log.read_text(encoding="utf-8")
    assert_equal_checkpoints(killed, whole)


def test_a_training_stopped_after_every_epoch_slows_down_and_stops_like_one_that_was_not(corpus, tmp_path):
    """``--patience`` and ``reduce_lr_on_plateau`` count epochs without progress, of which there are enough here."""
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"

    def arguments(folder: Path, epochs: int) -> list[str]:
        schedule = ("--lr", 0.1, "--lr-scheduler", "reduce_lr_on_plateau", "--lr-patience", 1, "--lr-shrink", 0.5)
        limits = ("--patience", 2, "--max-epoch", epochs, "--save-interval-updates", 0, "--max-tokens", 2000)
        return [*flags(corpus, folder, 1000), *schedule, *limits]

    log = tmp_path / "whole.log"
    assert train(arguments(whole, 40), log) == 0
    text = log.read_text(encoding="utf-8")
    assert "early stop" in text
    assert len({json.loads(line)["train_lr"] for line in re.findall(r"\| train \| (\{.*\})", text)}) > 1
    log = tmp_path / "stopped.log"
    for epochs in range(1, 41):
        assert train(arguments(stopped, epochs), log) == 0
        if "early stop" in log.read_text(encoding="utf-8"):
            break
    assert_equal_checkpoints(stopped, whole)


@pytest.mark.parametrize("moment", [{"save": 2}, {"copy": 2}], ids=lambda moment: next(iter(moment)))
def test_a_training_killed_while_it_writes_a_checkpoint_goes_on(corpus, tmp_path, moment):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    arguments = flags(corpus, killed, 12)
    assert train(arguments, tmp_path / "log", **moment) == -signal.SIGKILL
    for path in killed.glob("*.pt"):
        torch.load(path, weights_only=False)  # nothing that has a checkpoint's name is half of one
    assert train(arguments, tmp_path / "log") == 0
    assert train(flags(corpus, whole, 12), tmp_path / "whole.log") == 0
    assert_equal_checkpoints(killed, whole)


def test_a_full_disk_gets_one_line_and_leaves_the_last_checkpoint(corpus, tmp_path):
    folder, whole = tmp_path / "full", tmp_path / "whole"
    assert train(flags(corpus, folder, 6), tmp_path / "log") == 0
    last = folder / "checkpoint_last.pt"
    before = last.read_bytes()
    assert train(flags(corpus, folder, 12), tmp_path / "full.log", file_size=len(before) // 2) == 1
    message = (tmp_path / "full.log").read_text(encoding="utf-8").strip().split("\n")[-1]
    assert "could not be written (File too large)" in message
    assert "make room, then start the same command again" in message
    assert last.read_bytes() == before
    assert not [path for path in folder.iterdir() if path.suffix != ".pt"]
    assert train(flags(corpus, folder, 12), tmp_path / "log") == 0
    assert train(flags(corpus, whole, 12), tmp_path / "whole.log") == 0
    assert_equal_checkpoints(folder, whole)
