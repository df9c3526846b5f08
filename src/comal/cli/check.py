"""``comal check``: every problem of an archive, and a mended copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import print_json, print_rows, working
from comal.errors import InvalidInputError, ObjectNotFoundError, Problem, counted
from comal.findings import LEVELS, Report
from comal.formats import Findings, adapter_of, sniff
from comal.storage import parse_href, targets
from comal.storage.location import FILE, shown_path


@click.command(
    "check",
    cls=Command,
    examples=(
        ("comal check scenes.tacozip", "exit code 1 when there is an error"),
        ("comal check scenes.tacozip --json", "every problem with its code and place"),
        ("comal check https://example.org/big.tacozip --level structure", "without the data"),
        ("comal check old.tacozip --repair mended.tacozip", "a copy with an index that is right"),
    ),
)
@options.source
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default="full",
    show_default=True,
    help="Metadata only; also some of the leaves; or every byte.",
)
@click.option("--repair", metavar="OUT", help="Write a mended copy here; X is never changed.")
@options.overwrite
@options.pass_style
@click.pass_context
def command(
    ctx: click.Context,
    style: options.Style,
    source: str,
    level: str,
    repair: str | None,
    *,
    overwrite: bool,
) -> None:
    """List every problem of X: structure, index, metadata, and the checksum of each leaf.

    Exit code 1 means that X has an error; warnings do not count. With --repair the exit code
    tells of the copy.
    """
    try:
        adapter = adapter_of(sniff(source).format)
    except ObjectNotFoundError as error:
        if left := _left(source):
            error.hint = f"{left[0].message}: {left[0].place}"
        raise
    with working(f"checking {source}", style) as progress:
        found = adapter.check(source, level=level, progress=progress)
    more: dict[str, Any] = {}
    if repair is not None:
        if not found.problems:
            raise InvalidInputError("nothing to repair", where=source)
        more = {"repaired": found.to_dict()}
        with working(f"repairing {source}", style) as progress:
            adapter.repair(source, repair, overwrite=overwrite, progress=progress)
            found = adapter.check(repair, level=level, progress=progress)
    print_findings(found, [source], style, more, repair)
    if found.errors:
        ctx.exit(1)


def _left(source: str) -> list[Problem]:
    place = parse_href(source)
    left = targets.left_beside(place.path) if place.scheme == FILE else []
    text = f"left by a writer that was killed; 'comal clean {source}' or the next writer settles it"
    return [Problem("leftover", shown_path(path), text, "warning") for path in left]


def _with_leftovers(found: Findings, sources: Sequence[str]) -> Findings:
    left = [problem for source in sources for problem in _left(source)]
    if not left or not isinstance(found, Report):
        return found
    counts = {**found.counts, "leftover": len(left)}
    return replace(found, problems=(*found.problems, *left), counts=counts)


def print_findings(
    found: Findings,
    sources: Sequence[str],
    style: options.Style,
    more: dict[str, Any] | None = None,
    repaired: str | None = None,
) -> None:
    """Print the problems of a check, what killed writers have left, and how many there are."""
    found = _with_leftovers(found, sources)
    if style.json:
        print_json({**found.to_dict(), **(more or {})})
        return
    if found.problems:
        print_rows(
            ("severity", "code", "place", "message"),
            [(p.severity, p.code, p.place, p.message) for p in found.problems],
        )
    if not style.quiet:
        click.echo(f"{repaired}: written, {_count(found)}" if repaired else _count(found), err=True)


def _count(found: Findings) -> str:
    if not found.problems:
        return "no problems"
    return f"{counted(found.errors, 'error')}, {counted(found.warnings, 'warning')}"
