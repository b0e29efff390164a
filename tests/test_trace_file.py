"""Traces that somebody else made, or that are damaged: read whole, or refused in one line that names file and field."""

import io
import json
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairseq_attn_zoo.axes import Axes
from fairseq_attn_zoo.cli import main
from fairseq_attn_zoo.inspect.trace import EARLIER, Trace, shape_of

SOURCE, TARGET = ["a", "b", "a", "</s>"], ["c", "</s>"]
SIZES = {"hops": 3, "dimensions": 5}


def trace():
    """With every array that a trace can have."""
    random = np.random.default_rng(0)
    weights = {
        name: random.random([2, *(SIZES.get(size, size) for size in shape_of(axes, len(SOURCE), len(TARGET)))])
        for name, axes in EARLIER.items()
    }
    weights["source_coverage"] *= 3
    splits = np.array([[0, 1, 2, 3], [0, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
    return Trace("any", SOURCE, TARGET, random.random((2, 4)), weights, -1.5, splits, "((a b) (a </s>))")


def fields(path):
    return json.loads(trace().save(path).read_text(encoding="utf-8"))


def refused(path, *words):
    """The one line that says why a file is no trace."""
    with pytest.raises(ValueError) as error:
        Trace.load(path)
    line = str(error.value)
    assert line.startswith(f"{path} is not a trace of this package: ") and "\n" not in line and len(line) < 600
    assert all(word in line for word in words), line
    return line


@pytest.mark.parametrize("ending", ["json", "npz"])
def test_every_array_comes_back(tmp_path, ending):
    again, expected = Trace.load(trace().save(tmp_path / f"t.{ending}")), trace()
    assert (again.source, again.target, again.score, again.tree) == (SOURCE, TARGET, -1.5, expected.tree)
    assert list(again.weights) == list(expected.weights)
    np.testing.assert_array_equal(again.splits, expected.splits)
    for name, array in {**expected.weights, "alignment": expected.alignment}.items():
        np.testing.assert_allclose({**again.weights, "alignment": again.alignment}[name], array, rtol=1e-5)


def test_what_not_every_model_has_may_be_missing(tmp_path):
    kept = {name: fields(tmp_path / "t.json")[name] for name in ("architecture", "source", "target", "alignment")}
    (tmp_path / "t.json").write_text(json.dumps(kept))
    found = Trace.load(tmp_path / "t.json")
    assert (found.weights, found.score, found.splits, found.tree) == ({}, None, None, None)


def axes(**other):
    return {**Axes()._asdict(), **other}


@pytest.mark.parametrize("ending", ["json", "npz"])
def test_weights_of_a_mechanism_that_nobody_here_knows_come_back_with_their_axes(tmp_path, ending):
    own = {
        "by_head": (np.full((2, 4, 3), 0.25), Axes(by="head", title="source")),
        "gates": (np.full((2, 4), 7.0), Axes(total="any", title="gates so far")),
        "phrases": (np.full((2, 4, 4), 0.01), Axes("spans", total="at most one", title="phrases")),
    }
    weights = {name: values for name, (values, _) in own.items()}
    found = Trace(
        "any", SOURCE, TARGET, np.full((2, 4), 0.25), weights, axes={name: over for name, (_, over) in own.items()}
    )
    again = Trace.load(found.save(tmp_path / f"t.{ending}"))
    assert again.axes == found.axes
    for name, values in weights.items():
        np.testing.assert_allclose(again.weights[name], values)


def test_a_file_from_before_a_trace_said_what_its_weights_are_over_is_read(tmp_path):
    path = tmp_path / "t.json"
    found = {name: value for name, value in fields(path).items() if name != "axes"}
    path.write_text(json.dumps(found))
    assert Trace.load(path).axes == trace().axes


def nested(depth):
    return eval("[" * depth + "]" * depth)


WRONG = {  # field -> values that it cannot have, and what the line says beside its name
    "architecture": [(None, "expected a text, found null"), (3, "expected a text, found 3")],
    "source": [
        ("a b a </s>", "list of words"),
        ([], "no word"),
        (["a", "b", 3, "</s>"], "list of words"),
        ({"0": "a"}, "list of words, found an object"),
        (["a", "b"], "alignment: expected 2 x 2 numbers, found 2 x 4"),
    ],
    "target": [(None, "list of words, found null"), ([["c"], "</s>"], "list of words")],
    "score": [("high", "finite number"), (float("nan"), "found NaN"), (True, "found true"), (10**400, "")],
    "tree": [(["a"], "expected a text, found a list")],
    "alignment": [
        (None, "found null"),
        ("0.5", "found a text"),
        (0.5, "found 0.5"),
        ([], "2 x 4 numbers, found an empty list"),
        ([0.1] * 4, "found 0.1 among them"),
        ([[0.1] * 4], "2 x 4 numbers, found 1 x 4"),
        ([[0.1] * 4, [0.1] * 3], "rows of 3 and of 4"),
        ([[[0.1]] * 4] * 2, "found a list among them"),
        ([["0.1"] * 4] * 2, "found a text among them"),
        ([[True] * 4] * 2, "found true among them"),
        ([[0.1, 0.1, 0.1, None]] * 2, "found null among them"),
        ([[0.1] * 4, [0.1, 0.1, float("nan"), 0.1]], "alignment[1, 2] is nan; expected a finite number"),
        ([[0.1] * 4, [0.1, 0.1, 0.1, float("inf")]], "alignment[1, 3] is inf"),
        ([[0.1] * 4, [0.1, 2, 0.1, 0.1]], "alignment[1, 1] is 2; expected a weight between 0 and 1"),
        ([[-0.5] * 4] * 2, "alignment[0, 0] is -0.5"),
        ([[10**400] * 4] * 2, "beyond all bounds"),
        (nested(50), "found"),
    ],
    "weights": [
        ([], "object of arrays, found a list"),
        (None, "found null"),
        ({"constructor_hops": [[1]]}, "'constructor_hops' is no array of this package"),
        ({"alignment": [[0.1] * 4] * 2}, "'alignment' is no array"),
        ({"source": [[0.1] * 2] * 4}, "source: expected 2 x 4 numbers, found 4 x 2"),
        ({"source_hops": [[0.1] * 4] * 2}, "source_hops: expected lists of 2 x 4 x hops numbers"),
        ({"source_hops": [[[]] * 4] * 2}, "source_hops: expected 2 x 4 x hops numbers, found an empty list"),
        ({"source_chart": [[[0.1] * 3] * 4] * 2}, "source_chart: expected 2 x 4 x 4 numbers, found 2 x 4 x 3"),
        ({"target_hops": [[[0.1]] * 4] * 2}, "target_hops: expected 2 x 2 x hops numbers"),
        ({"source_coverage": [[-1] * 4] * 2}, "source_coverage[0, 0] is -1; expected a number not below 0"),
    ],
    "splits": [
        ([[0] * 4] * 4, "splits[0, 1] is 0; expected at least 1 and less than the span's words"),
        ([[1, 1, 1, 4], *[[1] * 4] * 3], "splits[0, 3] is 4"),
        ([[1, 1, -1, 1], *[[1] * 4] * 3], "splits[0, 2] is -1"),
        ([[1] * 3] * 3, "4 x 4 numbers, found 3 x 3"),
        ([[1.5] * 4] * 4, "whole numbers, found 1.5"),
        ([[10**30] * 4] * 4, "beyond all bounds"),
        ("none", "found a text"),
    ],
    "axes": [
        ([], "object, found a list"),
        ({"constructor()": {}}, "'constructor()' is no name of an array"),
        ({"alignment": axes()}, "'alignment' is no name of an array"),
        ({"own": {"over": "spans"}}, "own: expected an object with over, by, total, title"),
        ({"own": axes(over="sentences")}, "own: over is none of source words, target words, spans"),
        ({"own": axes(by=["hop"])}, "own: by is none of None, hop, head, dimension"),
        ({"own": axes(total=1)}, "own: total is none of one, at most one, any"),
        ({"own": axes(title="constructor[0]")}, "own: title is no short text of letters"),
        ({"own": axes(title="one"), "other": axes(title="one")}, "two arrays have one title"),
        ({"own": axes(by="hop")}, "own: weights by hop need a title"),
        ({"own": axes(by="hop", over="spans", title="own")}, "own: weights over spans cannot be by hop"),
    ],
    "vocabulary": [(3, "there is no such field")],
}


@pytest.mark.parametrize(
    "name, value, said", [(name, value, said) for name, cases in WRONG.items() for value, said in cases]
)
def test_a_field_that_does_not_fit_is_named(tmp_path, name, value, said):
    found = {**fields(tmp_path / "t.json"), name: value}
    (tmp_path / "t.json").write_text(json.dumps(found))
    refused(tmp_path / "t.json", *([said] if name in ("source", "weights") else [name, said]))


@pytest.mark.parametrize("name", ["architecture", "source", "target", "alignment"])
def test_a_field_that_is_missing_is_named(tmp_path, name):
    found = fields(tmp_path / "t.json")
    del found[name]
    (tmp_path / "t.json").write_text(json.dumps(found))
    refused(tmp_path / "t.json", f"{name}: missing")


@pytest.mark.parametrize(
    "text, said",
    [
        (b"", "Expecting value"),
        (b"3", "expected an object with fields, found 3"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"\xff\xfe\x00", ""),
        (b'{"source": "\xe7"}', "utf-8"),
    ],
)
def test_what_is_no_json_of_a_trace_is_refused(tmp_path, text, said):
    (tmp_path / "t.json").write_bytes(text)
    refused(tmp_path / "t.json", said)


def arrays(**changes):
    """The members of a .npz file, some of them changed."""
    with np.load(io.BytesIO(saved()), allow_pickle=False) as file:
        return {**{name: file[name] for name in file.files}, **changes}


def saved():
    with pytest.MonkeyPatch.context() as patch:
        buffer = io.BytesIO()
        buffer.close = lambda: None
        patch.setattr("pathlib.Path.open", lambda *_: buffer)
        trace().save("t.npz")
    return buffer.getvalue()


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"alignment": np.zeros((2, 4), dtype=complex)}, "alignment: expected numbers, found complex128"),
        ({"alignment": np.zeros((2, 4), dtype=bool)}, "alignment: expected numbers, found bool"),
        ({"alignment": np.full((2, 4), "a")}, "alignment: expected numbers, found <U1"),
        ({"alignment": np.array([[{}] * 4] * 2)}, "alignment: expected numbers, found object"),
        ({"alignment": np.zeros((2, 4), dtype="f4,f4")}, "alignment: expected numbers"),
        ({"alignment": np.float32(0.5)}, "alignment: expected 2 x 4 numbers, found a single one"),
        ({"alignment": np.full((2, 4), np.nan, dtype=np.float16)}, "alignment[0, 0] is nan"),
        ({"splits": np.ones((4, 4))}, "splits: expected whole numbers, found float64"),
        ({"splits": np.full((4, 4), 2**64 - 1, dtype=np.uint64)}, "splits[0, 1] is -1"),
        ({"source_hops": np.zeros((2, 4, 0))}, "source_hops: expected 2 x 4 x hops numbers, found 2 x 4 x 0"),
        ({"valueOf": np.zeros((2, 4))}, "'valueOf' is no array of this package"),
        ({"about": np.array(3)}, "about: expected a text, found int64"),
        ({"about": np.array("3")}, "expected an object"),
        ({"about": np.array("[" * 100_000)}, "nested too deeply"),
        ({"about": np.array('{"alignment": [[1]]}')}, "about: it must not hold alignment"),
    ],
)
def test_an_array_that_does_not_fit_is_named(tmp_path, changes, said):
    np.savez(tmp_path / "t.npz", **arrays(**changes))
    refused(tmp_path / "t.npz", said)


def test_the_words_about_a_trace_must_be_there(tmp_path):
    kept = arrays()
    del kept["about"]
    np.savez(tmp_path / "t.npz", **kept)
    refused(tmp_path / "t.npz", "about: missing")


def member(header, data=b""):
    """An array's file with a header that may lie."""
    text = repr(header).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("shape", [(10**6, 10**7), (2**40, 2**40), (-2, -4), (3, 4)])
def test_memory_is_not_taken_for_what_a_header_claims(tmp_path, shape, compression):
    path = tmp_path / "t.npz"
    np.savez(path, **{name: array for name, array in arrays().items() if name != "alignment"})
    with zipfile.ZipFile(path, "a", compression) as file:
        claim = {"descr": "<f8", "fortran_order": False, "shape": shape}
        file.writestr("alignment.npy", member(claim, np.zeros(8).tobytes()))
    refused(path, "alignment", str(shape))


def test_memory_is_not_taken_for_a_file_that_blows_up(tmp_path):
    path = tmp_path / "t.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        with file.open("alignment.npy", "w") as target:
            target.write(member({"descr": "<f8", "fortran_order": False, "shape": (2**28,)}))
        info = file.infolist()[0]
        info.file_size = 2**31  # in the directory, which is what a reader believes
    refused(path, "claim 2,048 MiB")


def test_an_archive_that_wants_a_password_or_an_odd_compression_is_refused(tmp_path):
    data = saved()
    directory = data.index(b"PK\x01\x02")
    encrypted = bytearray(data)
    encrypted[6] |= 1  # of the first member, in its own header and in the directory
    encrypted[directory + 8] |= 1
    (tmp_path / "t.npz").write_bytes(encrypted)
    refused(tmp_path / "t.npz", "it is damaged", "password")
    odd = bytearray(data)
    odd[8] = odd[directory + 10] = 97
    (tmp_path / "t.npz").write_bytes(odd)
    refused(tmp_path / "t.npz", "it is damaged", "compression")


def test_two_arrays_of_one_name_are_refused(tmp_path):
    (tmp_path / "t.npz").write_bytes(saved())
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(tmp_path / "t.npz", "a") as file:
        file.writestr("alignment.npy", member({"descr": "<f8", "fortran_order": False, "shape": ()}, b"\0" * 8))
    refused(tmp_path / "t.npz", "alignment: there are two of this name")


def reads_or_refuses(path):
    """A damaged file is a trace all the same, or gets its line; nothing else happens."""
    try:
        found = Trace.load(path)
    except ValueError:
        refused(path)
    else:
        assert found.alignment.shape == (len(found.target), len(found.source))


DAMAGE = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.filterwarnings("ignore")
@DAMAGE
@given(data=st.data())
def test_no_damage_escapes(tmp_path, data):
    ending = data.draw(st.sampled_from(["npz", "json"]))
    whole = trace().save(tmp_path / f"t.{ending}").read_bytes()
    broken = bytearray(whole)
    for place, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), min_size=1, max_size=4)
    ):
        broken[place] = value
    kept = data.draw(st.one_of(st.just(len(whole)), st.integers(0, len(whole))))
    (tmp_path / f"t.{ending}").write_bytes(broken[:kept])
    reads_or_refuses(tmp_path / f"t.{ending}")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*EARLIER, "x", "over", "title"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@DAMAGE
@given(name=st.sampled_from([*WRONG]), value=JSON)
def test_no_value_of_a_field_escapes(tmp_path, name, value):
    path = tmp_path / "t.json"
    path.write_text(json.dumps({**fields(path), name: value}))
    reads_or_refuses(path)


def test_plot_says_what_is_wrong_with_a_trace_in_one_line(tmp_path, capsys):
    path = tmp_path / "t.json"
    path.write_text(json.dumps({**fields(path), "splits": [[0] * 4] * 4}))
    assert main(["plot", str(path), "--folder", str(tmp_path / "figures")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"fairseq-attn-zoo plot: {path} is not a trace of this package: splits[0, 1] is 0; ")
    assert said.count("\n") == 1
    assert not (tmp_path / "figures").exists()
