"""What commands read and write: nothing is lost, and how a command ends."""

import os
import subprocess
import sys

import pytest
from commands import PACKAGE, read_lines, write_lines

from fairseq_attn_zoo import files, grammar
from fairseq_attn_zoo.files import Files, written_aside, written_lines

ROOT = PACKAGE.parent


def start(*arguments, redirected="", **settings) -> subprocess.CompletedProcess:
    """``python -m`` in a shell, which closes and redirects streams."""
    call = ["bash", "-c", f'exec "$@" {redirected}', "bash", sys.executable, "-m", *map(str, arguments)]
    return subprocess.run(call, cwd=ROOT, capture_output=True, encoding="utf-8", check=False, **settings)


# Whole or not at all


def test_lines_appear_together_and_only_when_all_are_there(tmp_path):
    path = tmp_path / "out"
    path.write_text("before\n")
    path.chmod(0o640)
    with written_lines(path) as file:
        print("one", file=file, flush=True)
        assert read_lines(path) == ["before"]
    assert read_lines(path) == ["one"] and path.stat().st_mode & 0o777 == 0o640
    with pytest.raises(ZeroDivisionError), written_lines(path) as file:
        print("two", file=file, flush=True)
        raise ZeroDivisionError
    assert read_lines(path) == ["one"] and os.listdir(tmp_path) == ["out"]


def test_a_link_is_written_through_and_a_pipe_is_written_to(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "target")
    with written_lines(tmp_path / "link") as file:
        print("one", file=file)
    assert (tmp_path / "link").is_symlink() and read_lines(tmp_path / "folder" / "target") == ["one"]
    reader, writer = os.pipe()
    with written_lines(f"/dev/fd/{writer}") as file:
        print("two", file=file)
    os.close(writer)
    assert os.read(reader, 100) == b"two\n"
    os.close(reader)


def test_a_disk_that_is_full_is_named_with_the_file(tmp_path):
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device: '.*full'"), written_lines(tmp_path / "full") as file:
        print("one", file=file)


def test_two_processes_that_write_one_file_do_not_take_it_from_each_other(tmp_path):
    path = tmp_path / "checkpoint_last.pt"
    (resume, resumed), (begun, begin) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with written_aside(path) as aside:
                aside.write_text("the child's")
                os.write(begin, b"!")
                os.read(resume, 1)  # while the other one begins and ends
            os._exit(0)
        finally:
            os._exit(1)
    os.read(begun, 1)
    with written_aside(path) as aside:
        aside.write_text("the parent's")
    assert path.read_text() == "the parent's"
    os.write(resumed, b"!")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert path.read_text() == "the child's" and os.listdir(tmp_path) == [path.name]


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = tmp_path / f".out.{files.MACHINE}-{ended.pid}.unfinished"
    others = [f".out.{files.MACHINE}-{os.getppid()}.unfinished", f".out.another-{ended.pid}.unfinished", "a.unfinished"]
    for path in (left, *(tmp_path / name for name in others)):
        path.touch()
    with written_aside(tmp_path / "out") as aside:
        aside.touch()
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "out"])


def test_the_grammars_files_appear_together(tmp_path, monkeypatch):
    def fail(path):
        if path.name == "test.ja":
            raise OSError(28, "No space left on device", str(path))
        return written_lines(path)

    monkeypatch.setattr(grammar.corpus, "written_lines", fail)
    with pytest.raises(OSError, match="No space left"):
        grammar.write_corpus(tmp_path, train=3, valid=2, test=2)
    assert os.listdir(tmp_path) == []


# Nothing that is read is written over


def test_links_of_both_kinds_are_seen_through(tmp_path):
    text = tmp_path / "text"
    text.write_text("x")
    (tmp_path / "soft").symlink_to("text")
    (tmp_path / "hard").hardlink_to(text)
    (tmp_path / "copy").write_text("x")
    known = Files()
    known.reads("--input text", text)
    for name in ("text", "soft", "hard", f"../{tmp_path.name}/text"):
        with pytest.raises(ValueError, match="--output x would write over --input text; name another file"):
            known.writes("--output x", tmp_path / name)
    known.writes("--output copy", tmp_path / "copy")
    with pytest.raises(ValueError, match="--output copy would write over the dictionary"):
        known.reads("the dictionary", tmp_path / "copy")


def test_outputs_have_names_of_their_own(tmp_path):
    (tmp_path / "soft").symlink_to("new")
    known = Files()
    known.writes("--output", tmp_path / "new")
    with pytest.raises(ValueError, match="--translations and --output are the same file"):
        known.writes("--translations", tmp_path / "soft")
    for _ in range(2):
        known.writes("a device", "/dev/null")  # holds nothing
    known.reads("a device", "/dev/null")
    with pytest.raises(ValueError, match="--x is a folder"):
        known.writes("--x", tmp_path)
    with pytest.raises(ValueError, match="--y cannot be written: there is no folder .*nowhere"):
        known.writes("--y", tmp_path / "nowhere" / "y")


# How a command ends


@pytest.fixture
def links(tmp_path):
    write_lines(tmp_path / "links", ["0-0 1-1"])
    return tmp_path / "links"


def test_a_closed_stream_gets_one_line_or_none(links):
    closed = start("fairseq_attn_zoo", "aer", links, links, redirected=">&-")
    assert (closed.returncode, closed.stderr) == (2, "fairseq-attn-zoo aer: standard output is closed\n")
    unheard = start("fairseq_attn_zoo", "aer", links, "nowhere", redirected="2>&-")
    assert (unheard.returncode, unheard.stdout) == (2, "")  # not among what others read
    without_input = start("fairseq_attn_zoo", "aer", links, links, redirected="<&-")
    assert (without_input.returncode, without_input.stderr) == (0, "")


def test_an_output_that_cannot_be_written_gets_one_line(links):
    full = start("fairseq_attn_zoo", "aer", links, links, redirected=">/dev/full")
    assert full.returncode == 2
    assert full.stderr == "fairseq-attn-zoo aer: standard output cannot be written: No space left on device\n"


def test_a_reader_that_has_seen_enough_ends_the_command_without_a_word(links):
    """The pipe has no reader at all, so that what is written to it fails for certain."""
    reader, writer = os.pipe()
    os.close(reader)
    call = [sys.executable, "-m", "fairseq_attn_zoo", "aer", links, links]
    ended = subprocess.run(call, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")  # what a shell reports of `cat` or `sort`


def test_an_interrupt_while_pytorch_is_imported_ends_the_command_without_a_word(tmp_path):
    (tmp_path / "torch.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = start("fairseq_attn_zoo", "translate", "--path", __file__, "--input", __file__, env=environment)
    assert (ended.returncode, ended.stderr) == (130, "")


def test_a_missing_file_is_named_without_the_systems_number(links):
    for name in ("nowhere", "no/such/links"):
        missing = start("fairseq_attn_zoo", "aer", links, name)
        assert (missing.returncode, missing.stderr) == (2, f"fairseq-attn-zoo aer: there is no file or folder {name}\n")
    folder = start("fairseq_attn_zoo", "aer", links, links.parent)
    assert folder.stderr == f"fairseq-attn-zoo aer: {links.parent}: Is a directory\n"


def test_help_names_each_default_once():
    text = " ".join(start("fairseq_attn_zoo", "translate", "--help").stdout.split())
    assert "(default: standard input) --output" in text and "lines read before the first answer (default: 1000;" in text
    assert "hypotheses kept (default: 5)" in text and "b words (default: 0.0)" in text
    assert "None" not in text and "False" not in text
