"""Is everything in place? Versions, fairseq's patches, ``--user-dir``, the GPU, and whether the machine is free."""

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import NamedTuple

DISTRIBUTIONS = ("torch", "fairseq-fixed", "hydra-core", "omegaconf", "numpy")  # where nothing says what is needed


class Check(NamedTuple):
    """One line of the answer."""

    ok: bool
    what: str


def checks(user_dir: str | None = None) -> Iterator[Check]:
    """Look at everything, one thing after the other; nothing raises."""
    inside = (3, 10) <= sys.version_info[:2] <= (3, 13)
    yield Check(inside, f"Python {platform.python_version()}" + ("" if inside else "; use Python 3.10 to 3.13"))
    yield from versions()
    try:
        from . import compat  # noqa: F401
    except ImportError as error:
        yield Check(False, str(error))
        return
    yield from patches()
    yield from architectures()
    if user_dir is not None:
        yield user_dir_check(user_dir)
    yield device()
    yield bfloat16()
    yield busy()


def versions() -> Iterator[Check]:
    """What is installed, beside what the package was tested with."""
    from packaging.requirements import Requirement

    try:
        needs = map(Requirement, requires("fairseq_attn_zoo") or [])
        here = {"extra": ""}  # not what only the tests need
        wanted = {need.name: need.specifier for need in needs if need.marker is None or need.marker.evaluate(here)}
    except PackageNotFoundError:
        wanted = {}
        yield Check(True, "fairseq_attn_zoo is not installed but used from its folder: versions are not compared")
    for name in wanted or DISTRIBUTIONS:
        try:
            found = version(name)
        except PackageNotFoundError:
            yield Check(False, f"{name} is not installed; pip install '{name}{wanted.get(name, '')}'")
            continue
        fits = name not in wanted or wanted[name].contains(found.split("+")[0], prereleases=True)
        advice = "" if fits else f"; tested with {wanted[name]}: pip install '{name}{wanted[name]}'"
        yield Check(fits, f"{name} {found}{advice}")


def patches() -> Iterator[Check]:
    """What was changed in fairseq when this package was imported, and why."""
    from . import compat

    for patch in compat.PATCHES:
        reason = (patch.__doc__ or "").split("\n")[0].rstrip(".")
        yield Check(True, f"fairseq patched by compat.{patch.__name__}: {reason}")


def architectures() -> Iterator[Check]:
    from .models import ARCHITECTURES

    yield Check(True, f"{len(ARCHITECTURES)} architectures: {', '.join(sorted(ARCHITECTURES))}")
    folder = Path(__file__).resolve().parent
    yield Check(True, f"fairseq's commands find them with --user-dir {folder}")


def user_dir_check(user_dir: str) -> Check:
    """Whether fairseq would import this package under that name, as fairseq looks for it."""
    import fairseq

    beside = Path(fairseq.__file__).parent  # where fairseq looks when there is no such folder
    places = [Path(user_dir), beside / user_dir, beside.parent / user_dir]
    found = next((place for place in places if place.exists()), None)
    ours = Path(__file__).resolve().parent
    if found is None:
        return Check(False, f"--user-dir {user_dir}: no package there from {Path.cwd()}; use --user-dir {ours}")
    if found.resolve() != ours:
        return Check(False, f"--user-dir {user_dir} is {found.resolve()}, another copy than the installed {ours}")
    return Check(True, f"--user-dir {user_dir} is this package")


def device() -> Check:
    import torch

    if torch.cuda.is_available():
        return Check(True, f"GPU: {torch.cuda.get_device_name()}")
    built = torch.version.cuda
    if built is None:
        return Check(True, f"CPU with {torch.get_num_threads()} threads; this PyTorch was built without CUDA")
    return Check(True, f"CPU with {torch.get_num_threads()} threads; PyTorch has CUDA {built} but sees no GPU")


# Flags of /proc/cpuinfo, the fastest first -> what the instructions are called.
BFLOAT16_FLAGS = {"amx_bf16": "AMX", "avx512_bf16": "AVX512-BF16", "bf16": "Arm's BF16"}
PROCESSOR = Path("/proc/cpuinfo")


def bfloat16() -> Check:
    """Whether products of bfloat16 are made in hardware here, and so whether ``--bf16`` can be faster."""
    import torch

    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        unit, hardware = f"this GPU (compute capability {major}.{minor})", "tensor cores" if major >= 8 else None
    else:
        unit = "this processor"
        try:
            flags = set(PROCESSOR.read_text(encoding="utf-8", errors="replace").split())
        except OSError:
            return Check(
                True, f"bfloat16: {PROCESSOR} does not say whether {unit} multiplies it; time --bf16 before use"
            )
        hardware = next((name for flag, name in BFLOAT16_FLAGS.items() if flag in flags), None)
    if hardware is None:
        return Check(True, f"bfloat16: {unit} does not multiply it in hardware; leave --bf16 out, it would be slower")
    return Check(True, f"bfloat16: {unit} multiplies it in hardware ({hardware}); --bf16 may be faster, time both")


def busy() -> Check:
    """Whether other processes will be in the way. It is nothing wrong, and may pass."""
    import torch

    from .machine import busy_warning

    return Check(True, busy_warning(torch.get_num_threads()) or "this machine has cores to spare")
