"""What stands in a trace's file, read without trust: whatever a file claims, reading it takes bounded memory.

A value that these functions return has JSON's types or is an array of numbers; that it fits the others is for
:class:`.trace.Trace` to check.
"""

import io
import json
import math
from itertools import chain
from typing import Any
from zipfile import ZipFile

import numpy as np
from numpy.lib import format as npy

MIB = 2**20
LARGEST_JSON = 256 * MIB  # Python's objects may take twenty times as much
LARGEST_ARRAYS = 1024 * MIB  # 1,000 dimensions for each pair of 500 words

# A zip's member says how long it is, and its array what shape it has: both may lie, and NumPy believes the shape.
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_json(data: bytes) -> dict[str, Any]:
    """The fields of a ``.json`` trace. Numbers are still nested lists.

    Raises:
        ValueError: it is no JSON object
        RecursionError: it is nested too deeply
    """
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ValueError(f"expected an object with fields, found {kind_of(fields)}")
    return fields


def read_npz(data: bytes) -> dict[str, Any]:
    """The fields of a ``.npz`` trace, arrays of numbers under ``weights``, ``alignment`` and ``splits``.

    Raises:
        ValueError: an array is of another kind than it should be, or does not have the size that it claims
        Exception: whatever a damaged file makes of zipfile, zlib and NumPy's reader of headers
    """
    found: dict[str, Any] = {}
    with ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        size = sum(member.file_size for member in members)
        if size > LARGEST_ARRAYS:
            raise ValueError(f"its arrays claim {size / MIB:,.0f} MiB; at most {LARGEST_ARRAYS // MIB} are read")
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name in found:
                raise ValueError(f"{name}: there are two of this name")
            with archive.open(member) as file:
                version = npy.read_magic(file)
                if version not in HEADERS:
                    raise ValueError(f"{name}: unknown version {version} of an array")
                shape, _, dtype = HEADERS[version](file)
                if dtype.kind not in ("U" if name == "about" else "fiu"):
                    raise ValueError(f"{name}: expected {'a text' if name == 'about' else 'numbers'}, found {dtype}")
                if min(shape, default=0) < 0 or file.tell() + math.prod(shape) * dtype.itemsize != member.file_size:
                    raise ValueError(f"{name}: of the shape {shape} that it claims it would have another length")
            with archive.open(member) as file:
                found[name] = npy.read_array(file, allow_pickle=False)
    about = found.pop("about", None)
    if about is None:
        raise ValueError("about: missing")
    fields = read_json(str(about).encode("utf-8", "surrogatepass"))
    for name in sorted(fields.keys() & {"alignment", "splits", "weights"}):
        raise ValueError(f"about: it must not hold {name}, which are arrays of their own")
    for name in ("alignment", "splits"):
        if name in found:
            fields[name] = found.pop(name)
    return {**fields, "weights": found}


def numbers(name: str, value: Any, shape: tuple[int | str, ...], *, whole: bool = False) -> np.ndarray:
    """An array of finite numbers, from an array or nested lists.

    Args:
        name: of the field, for messages
        value: an array of real numbers, or lists of lists ... of numbers
        shape: the size of each dimension, or what to call one that may have any size from 1
        whole: int64 instead of float32 or float64

    Raises:
        ValueError: they are no numbers, not finite, or of another shape
    """
    called = " x ".join(map(str, shape))
    if not isinstance(value, np.ndarray):
        value = array_of(name, value, len(shape), called, whole)
    elif value.dtype.kind not in ("iu" if whole else "fiu"):
        raise ValueError(f"{name}: expected {'whole ' * whole}numbers, found {value.dtype}")
    fits = len(value.shape) == len(shape) and all(
        size == wanted if isinstance(wanted, int) else size > 0 for size, wanted in zip(value.shape, shape, strict=True)
    )
    if not fits:
        raise ValueError(
            f"{name}: expected {called} numbers, found {' x '.join(map(str, value.shape)) or 'a single one'}"
        )
    if whole:
        return value.astype(np.int64)
    require(name, value, np.isfinite(value), "a finite number")
    return value.astype(np.float32 if value.dtype == np.float32 else np.float64)


def array_of(name: str, value: Any, dimensions: int, called: str, whole: bool) -> np.ndarray:
    """Nested lists as an array. NumPy's own way would take ``true`` and texts for numbers, and any depth for an array."""
    shape: list[int] = []
    level = [value]
    for _ in range(dimensions):
        for part in level:
            if not isinstance(part, list):
                raise ValueError(f"{name}: expected lists of {called} numbers, found {kind_of(part)} among them")
        lengths = set(map(len, level))
        if len(lengths) != 1:
            raise ValueError(f"{name}: expected {called} numbers, found rows of {min(lengths)} and of {max(lengths)}")
        shape += lengths
        if shape[-1] == 0:
            raise ValueError(f"{name}: expected {called} numbers, found an empty list")
        level = list(chain.from_iterable(level))
    for part in level:
        if type(part) is not int and (whole or type(part) is not float):
            raise ValueError(f"{name}: expected {called} {'whole ' * whole}numbers, found {kind_of(part)} among them")
    try:
        return np.array(level, dtype=np.int64 if whole else np.float64).reshape(shape)
    except OverflowError:
        raise ValueError(f"{name}: a number is beyond all bounds") from None


def require(name: str, values: np.ndarray, right: np.ndarray, what: str) -> None:
    """Raises ValueError that names the first entry that is not ``right``."""
    if not right.all():
        place = np.argwhere(~right)[0].tolist()
        raise ValueError(f"{name}{place} is {values[tuple(place)]:.6g}; expected {what}")


def kind_of(value: Any) -> str:
    """What a value is called in JSON; of a number or a constant its value."""
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)[:20]
    names = ((dict, "an object"), (list, "a list"), (str, "a text"))
    return next((name for kind, name in names if isinstance(value, kind)), "an array")
