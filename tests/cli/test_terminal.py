"""What a person sees: the commands in a real terminal of a given width."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import sysconfig
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from comal import tortilla
from tests.cli.conftest import NESTED_KEYS

PROGRAM = Path(sysconfig.get_path("scripts")) / "comal"
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="comal is not installed as a command")

Screen = Callable[..., list[str]]

# Colours, and what moves the cursor without clearing anything.
_STYLE = re.compile(r"\x1b\[[0-9;?]*[mhlGAB]")
# The installed command, once for each line of arguments; a form feed says that it has ended.
_EACH = """
import json, runpy, sys
from comal.demo import scenes
# The steps of the demo are the same with those alone that it names.
scenes.PLACES = tuple(one for one in scenes.PLACES if one.name in ("taveuni", "cusco"))
for line in sys.stdin:
    sys.argv = json.loads(line)
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit:
        print(end="\\f", flush=True)
"""


@pytest.fixture(scope="module")
def screen() -> Iterator[Screen]:
    """What commands leave on a screen; one interpreter runs all of them."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    for name in ("COLUMNS", "LINES", "NO_COLOR", "CI"):
        environment.pop(name, None)
    with subprocess.Popen(
        [sys.executable, "-c", _EACH], stdin=subprocess.PIPE, stdout=slave, stderr=slave,
        env=environment, text=True,
    ) as process:  # fmt: skip
        os.close(slave)
        assert process.stdin is not None
        line = process.stdin

        def shown(*arguments: str | Path, width: int = 80) -> list[str]:
            """The lines that stay on the screen; what was cleared is gone."""
            fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
            print(json.dumps([str(PROGRAM), *map(str, arguments)]), file=line, flush=True)
            data = b""
            while not data.endswith(b"\f"):
                data += os.read(master, 65536)  # fails when the last writer has gone
            text = _STYLE.sub("", data[:-1].decode())
            # A line that is cleared keeps what comes behind the last time that it was.
            return [line.rpartition("\x1b[2K")[2].strip("\r") for line in text.split("\n")]

        yield shown
    os.close(master)


def test_columns_of_ls_stand_below_one_another(screen: Screen, nested: Path) -> None:
    lines = [line for line in screen("ls", nested) if line]
    assert [line.split()[0] for line in lines] == NESTED_KEYS
    assert len({len(line) for line in lines}) == 1


def test_a_wide_result_shows_what_fits_and_says_what_not(screen: Screen, nested: Path) -> None:
    lines = screen("taco", "sql", nested, "SELECT * FROM data", width=60)
    assert max(len(line) for line in lines if not line.startswith("...")) <= 60
    assert any(line.split()[:3] == ["s10", "FOLDER", "0.0"] for line in lines)
    text = "".join(lines)
    assert "internal:gdal_vsi" in text
    assert "--csv and --json print all" in text


def test_one_long_value_is_folded_and_whole(screen: Screen, nested: Path) -> None:
    lines = screen("taco", "sql", nested, "SELECT repeat('abc', 50) AS text FROM data LIMIT 1")
    assert "abc" * 50 in "".join(line.strip() for line in lines)


def test_the_bar_of_the_demo_makes_way_for_its_steps(screen: Screen, tmp_path: Path) -> None:
    out = tmp_path / "two words"
    lines = screen("demo", "--out", out, width=200)
    assert f"comal info '{out}/scenes.tacozip'" in "\n".join(lines)
    for title in ("Pack", "SQL", "Read", "Check", "Pictures"):
        assert any(line.startswith(title) for line in lines), title
    assert not any("━" in line and any(c.isdigit() for c in line) for line in lines)


def test_bytes_that_are_no_text_do_not_go_to_a_terminal(screen: Screen, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.bin").write_bytes(bytes(range(256)))
    (tmp_path / "in" / "a.txt").write_text("a text\n")
    archive = tmp_path / "a.tortilla"
    tortilla.pack_folder(tmp_path / "in", archive)
    shown = "\n".join(screen("get", archive, "a.bin"))
    assert "not text for a terminal" in shown
    assert "-o FILE" in shown
    assert screen("get", archive, "a.txt")[0] == "a text"
    screen("get", archive, "a.bin", "-o", tmp_path / "b.bin")
    assert (tmp_path / "b.bin").stat().st_size == 256
