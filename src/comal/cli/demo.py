"""``comal demo``: the main job, step by step."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from comal import demo
from comal.cli import app, options
from comal.cli.options import option
from comal.cli.output import print_json, working
from comal.demo.pipeline import RASTER, TILES


@app.command("demo")
@option("--out", "Folder for the results.", default="comal-demo")
@options.overwrite
@options.pass_style
def command(style: options.Style, out: str, *, overwrite: bool) -> None:
    """Make a small data set and show what can be done with it; needs no network.

    Made-up scenes become one TACO archive, which is queried by SQL, box and time; each sample is
    read back through GDAL by byte range and compared; the archive is checked; pictures are drawn.
    One scene becomes RaQuet, which becomes map tiles in Tapalcatl.

    $ comal demo  # into ./comal-demo
    $ comal demo --out try --overwrite  # into another folder, in place of an older demo
    """
    console = Console(highlight=False)
    quiet = style.quiet or style.json
    with working("comal demo", style, console if console.is_terminal else None):
        result = demo.run(
            out,
            overwrite=overwrite,
            tell=None if quiet else lambda step: _tell(console, step),
        )
    if style.json:
        print_json(_summary(result))
    elif not style.quiet:
        _next(console, result)


def _tell(console: Console, step: Any) -> None:
    line = Text.assemble((f"{step.title:<10}", "bold cyan"), step.text)
    console.print(line, soft_wrap=True)
    if not step.rows:
        return
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in step.columns:
        table.add_column(Text(name))
    for row in step.rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    console.print(Padding(table, (0, 0, 0, 10)))


def _cell(value: Any) -> str:
    return f"{value:%Y-%m-%d}" if hasattr(value, "strftime") else str(value)


def _next(console: Console, result: Any) -> None:
    archive, key, name = (
        shlex.quote(str(part))
        for part in (result.archive, result.keys[0], Path(result.keys[0]).name)
    )
    raster, tiles = (shlex.quote(str(result.folder / name)) for name in (RASTER, TILES))
    lines = (
        f"comal info {archive}",
        f"comal ls {archive} | head",
        f"comal taco sql {archive} 'SELECT id FROM data LIMIT 3'",  # noqa: S608 - shown, not run
        f"comal get {archive} {key} -o {name}",
        f"comal check {archive}",
        f"comal serve {archive} {raster} {tiles}",
    )
    console.print()
    console.print(Text.assemble(("Look at   ", "bold green"), str(result.sheet)), soft_wrap=True)
    if console.is_terminal:
        console.print(Panel(Text("\n".join(lines)), title="type next", expand=False))
    else:
        console.print("Type next\n  " + "\n  ".join(lines), soft_wrap=True)


def _summary(result: Any) -> dict[str, Any]:
    return {
        "folder": str(result.folder),
        "archive": str(result.archive),
        "samples": len(result.keys),
        "sheet": str(result.sheet),
        "pictures": [str(path) for path in result.pictures],
        "steps": [{"title": step.title, "text": step.text} for step in result.steps],
    }
