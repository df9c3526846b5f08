"""The commands of large jobs: plan, run, merge, status."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click
from click import argument

from comal import jobs
from comal.cli import options
from comal.cli.app import PARTLY, Group, command
from comal.cli.options import Parsed, Style, flag, option
from comal.cli.output import done, human_size, print_json, print_rows, working
from comal.cli.raquet import raster_choices, raster_options
from comal.cli.taco import collection_fields, collection_options, packing_options
from comal.cli.tapalcatl import described_options, entry_options, layout_options, only_given
from comal.cli.tortilla import cut_options
from comal.cli.tortilla import packing_options as tortilla_options
from comal.errors import counted

_folder = argument("folder", metavar="PLAN")
_plan_option = option(
    "-o --output", "Folder of the plan.", required=True, metavar="PLAN", to="plan"
)


def _shard(text: str) -> tuple[int, int]:
    first, _, step = text.partition("/")
    return int(first), int(step)


@click.group("plan", cls=Group)
def plan() -> None:
    """Plan a job that is too long for one go: a folder that says what each part is made of.

    'comal run' makes the parts, here or on many machines that reach the same paths, 'comal status'
    tells how far it is, and 'comal merge' makes one data set of them.

    $ comal plan taco rasters/ out/scenes.tacozip -o plan/  # archives of 2 GB each
    $ comal run plan/  # all of it here; after Ctrl-C the same command goes on
    $ comal run plan/ --shard $SLURM_ARRAY_TASK_ID/100  # the share of one of 100 machines
    $ comal merge plan/  # the index
    """


def _planned(made: jobs.Plan, style: Style) -> None:
    size = sum(part.size or 0 for part in made.parts)
    summary = {
        "plan": str(made.folder),
        "output": str(made.output),
        "parts": len(made.parts),
        "items": sum(part.items for part in made.parts),
        "size": size,
    }
    done(summary, style, f"{made.folder}: {counted(len(made.parts), 'part')}, {human_size(size)}")


@plan.command()
@packing_options
@option("--split-size", "About the size of each archive.", metavar="SIZE", default="2GB")
@collection_options
@_plan_option
@options.pass_style
def taco(
    style: Style, /, directory: str, output: str, *, pattern: tuple[str, ...], **named: Any
) -> None:
    """Plan the files below DIRECTORY as TACO archives with an index; see 'comal taco create'.

    OUTPUT names them: out/scenes.tacozip becomes out/scenes_part0001.tacozip, ...

    $ comal plan taco rasters/ out/scenes.tacozip -o plan/  # archives of 2 GB
    $ comal plan taco rasters/ out/scenes.tacozip -o plan/ --manifest samples.parquet
      # only what a table lists, with its columns as fields
    $ comal plan taco s3://scenes/rasters s3://tacos/scenes.tacozip -o s3://tacos/plan
      # files, archives and plan in buckets
    """
    packing = ("plan", "manifest", "stac", "pad", "split_size")
    given = {name: named.pop(name) for name in packing} | {"pattern": list(pattern) or "*"}
    with working(f"planning {directory}", style):
        made = jobs.plan_taco(directory, output, **given, **collection_fields(**named))
    _planned(made, style)


@plan.command()
@tortilla_options
@cut_options("2GB")
@_plan_option
@options.pass_style
def tortilla(
    style: Style, /, directory: str, output: str, *, pattern: tuple[str, ...], **named: Any
) -> None:
    """Plan the files below DIRECTORY as a set of Tortillas; see 'comal tortilla create'.

    OUTPUT names them: out/scenes.tortilla becomes out/scenes.0001.part.tortilla, ... Each says how
    many there are, so none can be left out; 'comal merge' finds whether all of them are there.

    $ comal plan tortilla rasters/ out/scenes.tortilla -o plan/  # parts of 2 GB
    $ comal plan tortilla s3://scenes/rasters s3://tortillas/s.tortilla -o s3://tortillas/plan
      # files, parts and plan in buckets
    """
    with working(f"planning {directory}", style):
        made = jobs.plan_tortilla(directory, output, pattern=list(pattern) or "*", **named)
    _planned(made, style)


@plan.command()
@argument("sources", nargs=-1, required=True, metavar="RASTER...")
@argument("output", metavar="FOLDER")
@raster_options
@_plan_option
@options.pass_style
def raquet(
    style: Style, /, sources: tuple[str, ...], output: str, *, plan: str, **named: Any
) -> None:
    """Plan a RaQuet file in FOLDER for each RASTER; see 'comal raquet create'.

    $ comal plan raquet scenes/*.tif out/ -o plan/  # then: comal run plan/ --processes 8
    """
    with working(f"planning {output}", style):
        made = jobs.plan_raquet(list(sources), output, plan, **raster_choices(**named))
    _planned(made, style)


@plan.command()
@argument("source", metavar="SRC")
@argument("output", metavar="FOLDER")
@option("--split-size", "About the bytes of a part.", metavar="SIZE", default="2GB")
@options.drawing
@layout_options
@entry_options
@described_options
@_plan_option
@options.pass_style
def tapalcatl(
    style: Style, /, source: str, output: str, *, plan: str, split_size: str, **named: Any
) -> None:
    """Plan the tileset FOLDER of the tiles of SRC; see 'comal tapalcatl create'.

    A part is some neighbouring archives. 'comal merge' writes the document of the tileset.

    $ comal plan tapalcatl planet.pmtiles s3://tiles/planet -o s3://tiles/plan  # in buckets
    $ comal plan tapalcatl dem.parquet tiles/ -o plan/  # RaQuet drawn as PNG tiles
    $ comal plan tapalcatl dem.parquet tiles/ -o plan/ --band 1 --stretch 0,3000
      # one band, with these values as black and white
    """
    if named["scale"] == 1:  # the default, of which a RaQuet file has its own
        del named["scale"]
    with working(f"planning {output}", style):
        made = jobs.plan_tapalcatl(source, output, plan, split_size=split_size, **only_given(named))
    _planned(made, style)


@command()
@_folder
@option(
    "--shard",
    "Only the parts n with n mod N = I, from 0.",
    metavar="I/N",
    type=Parsed("I/N", _shard),
)
@options.by_workers
@options.pass_style
@click.pass_context
def run(ctx: click.Context, style: Style, /, folder: str, **named: Any) -> None:
    """Make the parts of PLAN that are not there yet, or a share of them.

    What is there is compared with its checksum and kept. It may be run again after a failure, and
    by several at a time. Exit code 11 means that some parts failed.

    $ comal run plan/  # all parts, one after the other, each with threads
    $ comal run plan/ --processes 8  # eight at a time
    $ comal run plan/ --dask tcp://10.0.0.1:8786  # on a cluster
    $ comal run plan/ --shard 3/100  # the share of machine 3 of 100
    """
    with working(f"running {folder}", style) as progress:
        ran = jobs.run(folder, progress=progress, **named)
    text = f"{folder}: {counted(ran.made, 'part')} made, {ran.kept} kept"
    if ran.empty:
        text += f", {ran.empty} without data"
    if ran.elsewhere:
        text += f", {ran.elsewhere} in the hands of others"
    lines = [text, *(f"{name} failed: {reason}" for name, reason in ran.failed.items())]
    done(ran.to_dict(), style, "\n".join(lines))
    if ran.failed:
        ctx.exit(PARTLY)


@command()
@_folder
@flag("--skip-missing", "Leave out parts that are not there, such as those that failed.")
@options.pass_style
def merge(style: Style, folder: str, *, skip_missing: bool) -> None:
    """Make one data set of the parts of PLAN: their index, with counts and statistics of all.

    TACO gets the index of 'comal taco tacocat', RaQuet an index.json with the extent of each file
    and exact statistics of each band, a tileset its meta.json. Parts without any data are left out.
    Tortillas need no index, but all of their parts.

    $ comal merge plan/  # when all parts are done
    $ comal merge plan/ --skip-missing  # without those that failed
    """
    with working(f"merging {folder}", style):
        made = jobs.merge(folder, skip_missing=skip_missing)
    text = f"{counted(made['parts'], 'part')}, {human_size(made['size'])}"
    if made["left_out"]:
        text += f", {len(made['left_out'])} left out"
    done(made, style, "\n".join([*made["output"], text]))


@command()
@_folder
@flag("--failed", "Only the parts that failed.")
@options.pass_style
def status(style: Style, folder: str, *, failed: bool) -> None:
    """Show which parts of PLAN are done, empty, running or waiting, and why others failed.

    $ comal status plan/  # how far it is
    $ comal status plan/ --failed  # only what went wrong
    """
    found = jobs.status(folder)
    counts = Counter(one.state for one in found)
    shown = [one for one in found if one.state == "failed" or not failed]
    if style.json:
        parts = [{"name": one.name, "state": one.state, "reason": one.reason} for one in shown]
        print_json({"counts": dict(counts), "parts": parts})
        return
    print_rows(("state", "part", "reason"), [(p.state, p.name, p.reason or "") for p in shown])
    if not style.quiet:
        click.echo(", ".join(f"{count} {state}" for state, count in counts.items()), err=True)
