"""What a failed command prints and returns."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from comal import errors
from comal.cli.app import Flags, PipeClosedError, guarded
from tests.cli.conftest import Run
from tests.raquet.writing.sources import noise, utm

COMAL = [sys.executable, "-c", "from comal.cli import main; main()"]

CODES = [
    (errors.ObjectNotFoundError("x"), 3),
    (errors.NotInContainerError("x"), 3),
    (errors.AccessDeniedError("x"), 4),
    (errors.NotThisFormatError("x"), 5),
    (errors.UnsupportedVersionError("x"), 5),
    (errors.InvalidMetadataError("x"), 6),
    (errors.ShortReadError("x"), 7),
    (errors.StorageError("x"), 7),
    (errors.InvalidInputError("x"), 2),
    (errors.QueryError("x"), 2),
    (errors.MissingExtraError("x"), 8),
    (errors.UnsafeContentError("x"), 9),
    (errors.LimitExceededError("x"), 9),
    (errors.ObjectChangedError("x"), 10),
    (errors.ConflictError("x"), 10),
    (click.UsageError("x"), 2),
    (click.Abort(), 130),
    (PipeClosedError(), 141),
    (OSError(28, "No space left on device"), 7),
    (ZeroDivisionError("x"), 70),
]


@pytest.mark.parametrize(("error", "code"), CODES, ids=lambda value: type(value).__name__)
def test_codes(error: Exception, code: int) -> None:
    def fail() -> None:
        raise error

    assert guarded(fail, Flags()) == code


def test_usage_error_as_json(run: Run) -> None:
    assert json.loads(run("info", "--json", code=2).stderr)["code"] == "usage"


def test_traceback_only_with_debug(run: Run, tmp_path: Path) -> None:
    assert "Traceback" not in run("info", tmp_path / "absent", code=3).stderr
    assert "Traceback" in run("info", tmp_path / "absent", "--debug", code=3).stderr


def test_a_bug_asks_for_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> None:
        raise KeyError("x")

    assert guarded(broken, Flags()) == 70
    assert "report" in capsys.readouterr().err


def test_flags_end_at_the_double_dash() -> None:
    assert Flags.of(["ls", "--json", "--", "--debug"]) == Flags(json=True, debug=False)


def test_closed_pipe(flat: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*COMAL, "ls", str(flat)], stdout=writer, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_full_output(flat: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMAL, "ls", str(flat)], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 7
    assert b"No space left" in done.stderr


def test_output_is_utf8_and_may_be_closed(flat: Path) -> None:
    query = "SELECT '日本' AS a FROM data LIMIT 1"
    line = [*COMAL, "taco", "sql", str(flat), query]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(line, env=ascii_only, capture_output=True, check=True)
    assert done.stdout == "a\n日本\n".encode()
    closed = ["sh", "-c", f"{shlex.join([*COMAL, 'info', str(flat)])} <&- >&- 2>&-"]
    assert subprocess.run(closed, check=False).returncode == 0


def test_messages_name_options_and_no_arguments_of_python(run: Run, tmp_path: Path) -> None:
    source = utm(tmp_path / "a.tif", noise((1, 60, 60), "uint8"))
    words = ("raquet", "create", source, tmp_path / "b", "--compression", "jpeg")
    assert "--layout interleaved" in run(*words, code=2).stderr
    assert "--layout interleaved" in json.loads(run(*words, "--json", code=2).stderr)["hint"]


_ENDED = """
import signal, sys, time
# Tests that run in the background, or under nohup, ignore these.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from comal.cli import main
from comal.taco.writing import containers

def slow(*_, **__):
    print("writing", flush=True)
    time.sleep(60)

containers.write_table = slow
sys.argv = ["comal", "taco", "create", "in", "out.tacozip"]
for _ in range(3):
    try:
        main()
    except SystemExit as end:
        print(end.code, flush=True)
        input()
"""


def test_a_command_that_is_ended_leaves_nothing(tmp_path: Path) -> None:
    """In the middle of writing: the hidden files are there, and then they are not."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a").write_bytes(b"a")
    with subprocess.Popen(
        [sys.executable, "-c", _ENDED],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)):
            assert process.stdout.readline() == "writing\n"
            assert (tmp_path / ".out.tacozip.comal-part").exists()
            process.send_signal(number)
            assert process.stdout.readline() == f"{code}\n", number
            assert [path.name for path in tmp_path.iterdir()] == ["in"], number
            print(file=process.stdin, flush=True)  # and now the next one
        told = process.communicate(timeout=30)[1]
    assert told.count("interrupted") == 3
    assert "Traceback" not in told
