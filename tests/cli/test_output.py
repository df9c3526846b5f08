"""Lines for programs, and tables for people."""

from __future__ import annotations

import io
import json
import re
import sys
import time

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from comal.cli import output
from comal.cli.app import styled
from comal.cli.generic import _json_lines as json_lines
from comal.cli.generic import _tab_lines as tab_lines
from comal.cli.options import BBOX, Style
from comal.progress import shortened

TEXT = st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=12))
ROWS = st.lists(st.tuples(TEXT, st.one_of(st.none(), st.integers(-(2**60), 2**60))), max_size=8)


def table(rows: list[tuple[str | None, int | None]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), ()]
    return pa.table(
        {"key": pa.array(columns[0], pa.string()), "size": pa.array(columns[1], pa.int64())}
    )


@settings(max_examples=100, deadline=None)
@given(ROWS, st.integers(0, 3))
def test_json_lines_say_what_the_table_holds(
    rows: list[tuple[str | None, int | None]], start: int
) -> None:
    part = table(rows)[start:]
    found = [json.loads(line) for line in json_lines(part).split(b"\n") if line]
    assert found == part.to_pylist()


@settings(max_examples=100, deadline=None)
@given(ROWS)
def test_tab_lines_have_a_line_per_row(rows: list[tuple[str | None, int | None]]) -> None:
    text = tab_lines(table(rows)).decode()
    assert text.count("\n") == len(rows)
    assert text.count("\t") == len(rows)
    assert all(character.isprintable() or character in "\t\n" for character in text)


def test_tables_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    output.print_rows(("id", "n"), [("[red]x[/red]", 1), ("\x1b[31m", None)])
    text = capsys.readouterr().out
    assert "[red]x[/red]" in text
    assert "\x1b[31m" not in text


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Console] = []

    def console(**options: object) -> Console:
        shown.append(Console(record=True, force_terminal=True, width=60, file=sys.stderr))
        return shown[0]

    monkeypatch.setattr("rich.console.Console", console)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    for what, rate in (("copying bytes", r"\d [kMGTP]B/s"), ("making tiles", r"\d/s")):
        with output.working("copying", Style()) as progress:
            for done in range(3):
                progress(done * 10**5, 10**6, what)
                time.sleep(0.02)
        text = shown.pop().export_text()
        assert what in text
        assert re.search(rate, text)


@pytest.mark.parametrize("style", [Style(quiet=True), Style(json=True)])
def test_no_progress_when_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], style: Style
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with output.working("copying", style) as progress:
        progress(1, 2, "bytes")
    assert capsys.readouterr() == ("", "")


def test_human_size() -> None:
    texts = {0: "0 bytes", 999: "999 bytes", 1000: "1.0 kB", 1_400_000: "1.4 MB"}
    texts[5 * 10**15] = "5000.0 TB"
    assert {size: output.human_size(size) for size in texts} == texts


def test_a_box_is_four_numbers() -> None:
    assert BBOX("-10, 35,4,44.5") == (-10.0, 35.0, 4.0, 44.5)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_bar_keeps_its_place_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=width, color_system=None)
    long = "converting /data/archive/with/a/very/long/path/to/a/scene/of/europe_2025.tif"
    with output.working(long, Style(), console) as tell:
        tell(5, 100, long)
    frames = re.split(r"\x1b\[[0-9?]*[A-Za-z]|[\r\n]", written.getvalue())
    shown = next(line for line in frames if "5%" in line)
    assert len(shown) <= width
    assert shown.startswith("conv")
    assert "025.tif" in shown
    assert set("\u2501\u2578") & set(shown)  # the bar


def test_a_text_loses_its_middle() -> None:
    assert shortened("short", 8) == "short"
    assert shortened("0123456789abcdef", 12) == "0123...bcdef"


def test_fields_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_fields(
        {
            "whole": True,
            "tiles": {"0": 1, "1": 4},
            "formats": {"mvt": {"Content-Type": "a/b", "Content-Encoding": "gzip"}, "txt": {}},
            "bands": [{"name": "b1", "type": "int16", "nodata": None}, {"name": "b2"}],
            "profiles": [],
            "title": None,
        },
        Style(),
    )
    assert capsys.readouterr().out.splitlines() == [
        "whole     yes",
        "tiles     0: 1, 1: 4",
        "formats   mvt (Content-Type: a/b, Content-Encoding: gzip), txt (-)",
        "bands     b1 (type: int16), b2",
        "profiles  -",
    ]


def test_fields_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has no NaN, no infinity and no bytes."""
    values = [float("nan"), float("-inf"), b"\xff", 2**64, {"deep": (float("inf"), "é")}]
    output.print_fields({"values": values}, Style(json=True))
    text = capsys.readouterr().out
    assert json.loads(text, parse_constant=pytest.fail) == {
        "values": [None, None, "ff", 2**64, {"deep": [None, "é"]}]
    }


def test_plain_texts_for_who_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "")  # no-color.org: it counts unless it is empty
    assert styled("comal:", fg="red") == "\x1b[31mcomal:\x1b[0m"
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as context:
            context.setenv(name, value)
            assert styled("comal:", fg="red") == "comal:"
