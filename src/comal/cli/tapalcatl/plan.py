"""``comal tapalcatl plan``: archives, entries and directories of a layout."""

from __future__ import annotations

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import human_size, print_json, print_rows
from comal.cli.tapalcatl.opening import box_of, numbers_of, zooms_of
from comal.errors import counted
from comal.tapalcatl import plan
from comal.tapalcatl.wire import split_suffix


@click.command(
    "plan",
    cls=Command,
    examples=(
        ("comal tapalcatl plan 0-14", "the layout that comal chooses for the world"),
        ("comal tapalcatl plan 0-14 --bbox 5,45,15,50", "for a country"),
        ("comal tapalcatl plan 0-14 --materialized 0,4,8,12 --metatile 1", "for another one"),
        ("comal tapalcatl plan 0-14 --per-tile 4", "with four formats or scales of each tile"),
    ),
)
@click.argument("zooms", metavar="ZOOMS")
@click.option("--bbox", metavar="W,S,E,N", help="Only tiles of this box, in degrees.")
@click.option("--metatile", type=click.IntRange(1), help="Root tiles of an archive per side.")
@click.option("--materialized", metavar="Z,Z,...", help="Zooms at which archives begin.")
@click.option(
    "--per-tile", type=click.IntRange(1), default=1, show_default=True, help="Entries of a tile."
)
@click.option("--suffix", default=".mvt", show_default=True, help="End of names, as '@2x.png'.")
@options.pass_style
def command(
    style: options.Style,
    zooms: str,
    bbox: str | None,
    metatile: int | None,
    materialized: str | None,
    per_tile: int,
    suffix: str,
) -> None:
    """Count what a tileset of ZOOMS comes to when every tile is there.

    A directory of 64 KiB or less comes with the first request for an archive; a layout that is
    not given is chosen so that all do.
    """
    low, high = zooms_of(zooms, "ZOOMS")
    split_suffix(suffix)
    planned = plan(
        low,
        high,
        bounds=box_of(bbox),  # type: ignore[arg-type]  # four numbers, as is checked there
        metatile=metatile,
        materialized_zooms=numbers_of(materialized, "--materialized"),
        per_tile=per_tile,
        suffix=suffix,
    )
    if style.json:
        print_json(planned.to_dict())
        return
    rows = [
        (
            f"{zoom.zoom}-{zoom.last_zoom}",
            f"{zoom.archives:,}",
            f"{zoom.entries:,}",
            f"{zoom.most_entries:,}",
            human_size(zoom.directory_bytes),
        )
        for zoom in planned.zooms
    ]
    print_rows(("zooms", "archives", "entries", "in an archive", "its directory"), rows)
    if not style.quiet:
        chosen = ",".join(map(str, planned.materialized_zooms))
        click.echo(
            f"{counted(planned.archives, 'archive')}, "
            f"{counted(planned.entries, 'entry', 'entries')}: "
            f"--materialized {chosen} --metatile {planned.metatile}",
            err=True,
        )
        if not planned.fits:
            click.echo("a directory is over 64 KiB: its archives cost a request more", err=True)
