"""Several processes: workers that train together, and workers that load data."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import USER_DIR, tiny_model
from zoo import variant_name, variants

HERE = Path(__file__).parent


def python(*arguments: str | Path | int, cwd: Path) -> str:
    """What a Python process prints."""
    finished = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)},
        capture_output=True,
        encoding="utf-8",
    )
    assert finished.returncode == 0, (finished.stdout + finished.stderr)[-3000:]
    return finished.stdout


def two_processes(*arguments: str | Path | int, cwd: Path) -> str:
    return python("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", 2, *arguments, cwd=cwd)


@pytest.fixture(scope="module")
def differences(tmp_path_factory) -> dict[str, float]:
    """What ``programs/ddp_worker.py`` found."""
    return json.loads(
        two_processes(HERE / "programs/ddp_worker.py", cwd=tmp_path_factory.mktemp("ddp")).split("\n")[-2]
    )


@pytest.mark.parametrize("variant", variants(), ids=variant_name)
def test_two_processes_train_like_one_on_the_whole_batch(differences, variant):
    """DistributedDataParallel as it is, in float64; one of the two gets a batch whose targets are all empty."""
    assert differences[variant_name(variant)] < 1e-9


def flags(corpus, folder: Path) -> list[str | Path | int]:
    return [
        *(corpus.data, *USER_DIR, *tiny_model("lstm_memnet_hops"), "--criterion", "chunked_cross_entropy"),
        *("--optimizer", "adam", "--lr", 0.01, "--clip-norm", 1.0, "--max-tokens", 250, "--max-update", 10),
        *("--save-dir", folder, "--no-epoch-checkpoints", "--seed", 1, "--cpu", "--disable-validation"),
    ]


def parameters(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "checkpoint_last.pt", weights_only=False)["model"]


@pytest.fixture(scope="module")
def alone(corpus, tmp_path_factory) -> dict[str, torch.Tensor]:
    """The parameters after ten updates of two batches each."""
    folder = tmp_path_factory.mktemp("alone")
    python("-m", "fairseq_cli.train", *flags(corpus, folder), "--update-freq", 2, cwd=folder)
    return parameters(folder)


def test_torchrun_stops_and_goes_on_like_one_process_with_larger_batches(corpus, alone, tmp_path):
    for updates in (4, 10):
        two_processes("-m", "fairseq_cli.train", *flags(corpus, tmp_path), "--max-update", updates, cwd=tmp_path)
    for name, values in parameters(tmp_path).items():
        torch.testing.assert_close(values, alone[name], rtol=0, atol=1e-5)


def test_torchrun_trains_in_bfloat16(corpus, alone, tmp_path):
    two_processes("-m", "fairseq_cli.train", *flags(corpus, tmp_path), "--bf16", cwd=tmp_path)
    found = parameters(tmp_path)
    assert {values.dtype for values in found.values()} == {torch.float32}
    narrow, wide = (torch.cat([values.flatten() for values in model.values()]) for model in (found, alone))
    assert not torch.equal(narrow, wide)
    assert torch.cosine_similarity(narrow, wide, dim=0) > 0.98


def test_spawned_workers_load_the_same_data(corpus, alone, tmp_path):
    arguments = (*flags(corpus, tmp_path), "--update-freq", 2, "--num-workers", 2)
    python(HERE / "programs/spawning_train.py", *arguments, cwd=tmp_path)
    for name, values in parameters(tmp_path).items():
        assert torch.equal(values, alone[name])
