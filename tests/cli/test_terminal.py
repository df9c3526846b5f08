"""What a person sees: the commands in a real terminal of a given width."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sysconfig
import termios
from pathlib import Path

import pytest

from comal import tortilla
from tests.cli.conftest import NESTED_KEYS

PROGRAM = Path(sysconfig.get_path("scripts")) / "comal"
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="comal is not installed as a command")

# Colours, and what moves the cursor without clearing anything.
_STYLE = re.compile(r"\x1b\[[0-9;?]*[mhlGAB]")


def screen(*arguments: str | Path, width: int = 80) -> list[str]:
    """The lines that stay on the screen; what was cleared is gone."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {**os.environ, "TERM": "xterm"}
    for name in ("COLUMNS", "LINES", "NO_COLOR", "CI"):
        environment.pop(name, None)
    line = [str(PROGRAM), *map(str, arguments)]
    with subprocess.Popen(
        line, stdin=slave, stdout=slave, stderr=slave, env=environment, close_fds=True
    ):
        os.close(slave)
        data = b""
        while True:
            try:
                block = os.read(master, 65536)
            except OSError:  # Linux says so when the last writer has gone
                break
            if not block:
                break
            data += block
    os.close(master)
    text = _STYLE.sub("", data.decode())
    # A line that is cleared keeps what comes behind the last time that it was.
    return [line.rpartition("\x1b[2K")[2].strip("\r") for line in text.split("\n")]


def test_columns_of_ls_stand_below_one_another(nested: Path) -> None:
    lines = [line for line in screen("ls", nested) if line]
    assert [line.split()[0] for line in lines] == NESTED_KEYS
    assert len({len(line) for line in lines}) == 1


def test_a_wide_result_shows_what_fits_and_says_what_not(nested: Path) -> None:
    lines = screen("taco", "sql", nested, "SELECT * FROM data", width=60)
    assert max(len(line) for line in lines if not line.startswith("...")) <= 60
    assert any(line.split()[:3] == ["s10", "FOLDER", "0.0"] for line in lines)
    text = "".join(lines)
    assert "internal:gdal_vsi" in text
    assert "--csv and --json print all" in text


def test_one_long_value_is_folded_and_whole(nested: Path) -> None:
    lines = screen("taco", "sql", nested, "SELECT repeat('abc', 50) AS text FROM data LIMIT 1")
    assert "abc" * 50 in "".join(line.strip() for line in lines)


def test_the_bar_of_the_demo_makes_way_for_its_steps(tmp_path: Path) -> None:
    out = tmp_path / "two words"
    lines = screen("demo", "--out", out, width=200)
    assert f"comal info '{out}/scenes.tacozip'" in "\n".join(lines)
    for title in ("Pack", "SQL", "Read", "Check", "Pictures"):
        assert any(line.startswith(title) for line in lines), title
    assert not any("━" in line and any(c.isdigit() for c in line) for line in lines)


def test_bytes_that_are_no_text_do_not_go_to_a_terminal(tmp_path: Path) -> None:
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
