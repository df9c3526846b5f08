"""The group ``comal ml``: what a training loop asks of a data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from comal.cli import options
from comal.cli.app import Group
from comal.cli.options import Style, choice, option, together, whole
from comal.cli.output import human_size, print_json, print_rows, working

if TYPE_CHECKING:
    from comal.ml import Statistics


@click.group("ml", cls=Group)
def group() -> None:
    """Training: statistics of the pixels of samples, and what limits a loader.

    $ comal ml stats scenes.tacozip --field image=image.tif  # mean and deviation of each band
    $ comal ml bench scenes.tacozip --workers 4  # what a loader gives, and what limits it
    """


_samples = together(
    options.source,
    option(
        "--field",
        "A name, and the leaf of each sample that it stands for: image=image.tif; repeatable. By"
        " default every leaf directly below the first sample.",
        multiple=True,
        type=options.KEY_VALUE,
        to="fields",
    ),
    option("--where", "Samples that meet this condition: 'cloud_cover < 10'.", metavar="SQL"),
    whole("--workers", "Threads that decode.", 0, 1024, default=2),
)


def _opened(source: str, fields: Any, where: str | None, columns: tuple[str, ...] = ()) -> Any:
    from comal import ml  # noqa: PLC0415 - help needs none of it

    return ml.dataset(source, dict(fields) or None, where=where, columns=columns)


@group.command()
@_samples
@option("--classes", "A field whose values are classes; repeatable.", multiple=True)
@option("--by", "A column: statistics for each of its values too.", metavar="COLUMN")
@whole("--sample", "Number of samples to draw at random; all by default.", 1)
@whole("--seed", "Another number draws other samples.", 0, default=0)
@option(
    "--save", "A JSON file for the result; a run that was stopped goes on there.", metavar="FILE"
)
@options.by_workers
@options.pass_style
def stats(
    style: Style, /, source: str, *, fields: Any, where: str | None, by: str | None, **named: Any
) -> None:
    """Compute statistics of every band of the samples of X from their pixels.

    Nodata, NaN and masked pixels do not count. A line for each band: field, band, valid pixels,
    mean, standard deviation, minimum, percentiles 2, 50 and 98, maximum; then one for each class.

    $ comal ml stats scenes.tacozip --field image=image.tif  # mean and deviation of each band
    $ comal ml stats scenes.tacozip --field mask=mask.tif --classes mask --by split
      # how frequent classes are in each split
    $ comal ml stats s3://bucket/big.tacozip --sample 1000 --save stats.json
      # of some samples, kept for training
    """
    data = _opened(source, fields, where, () if by is None else (by,))
    with working(f"statistics of {source}", style) as progress:
        found = data.stats(by=by, progress=progress, **named)
    if style.json:
        print_json(found.to_dict())
        return
    first = [] if by is None else [by]
    print_rows([*first, *_COLUMNS], _in_groups(found, _of_bands))
    if named["classes"]:
        print_rows([*first, *_CLASSES], _in_groups(found, _of_classes))


_COLUMNS = ("field", "band", "pixels", "mean", "std", "min", "p2", "p50", "p98", "max")
_CLASSES = ("field", "band", "class", "pixels", "share")


def _in_groups(found: Statistics, rows_of: Any) -> Iterator[list[Any]]:
    if not found.by:
        yield from rows_of(found)
    for value, one in found.by.items():
        yield from ([value, *row] for row in rows_of(one))


def _of_bands(found: Statistics) -> Iterator[list[Any]]:
    for name, one in found.fields.items():
        low, middle, high = (one.percentiles[q] for q in (2.0, 50.0, 98.0))
        every = (one.count, one.mean, one.std, one.min, low, middle, high, one.max)
        for band, numbers in enumerate(zip(*(array.tolist() for array in every), strict=True)):
            yield [name, band + 1, *numbers]


def _of_classes(found: Statistics) -> Iterator[list[Any]]:
    for name, one in found.fields.items():
        for value, counts in one.classes.items():
            for band, count in enumerate(counts.tolist()):
                yield [name, band + 1, value, count, count / max(1, int(one.count[band]))]


@group.command()
@_samples
@whole("--batch-size", "Samples in a batch.", 1, default=32)
@choice(
    "--order",
    ["random", "blocks", "archive"],
    "Any order, neighbours together, or as they are stored.",
    default="random",
)
@option(
    "--seconds",
    "Time for each of the four runs.",
    type=click.FloatRange(0, min_open=True),
    default=3.0,
)
@options.pass_style
def bench(
    style: Style, /, source: str, *, fields: Any, where: str | None, order: str, **named: Any
) -> None:
    """Tell how many samples of X a second a loader gives, and what limits it.

    The loader runs whole, then without decoding (storage), from memory (decoding), and from
    memory without decoding (python). The slowest of the last three is the limit.

    $ comal ml bench scenes.tacozip --field image=image.tif  # four runs of three seconds
    $ comal ml bench s3://bucket/big.tacozip --order blocks --workers 8 --json  # as JSON
    """
    from comal.ml import benching  # noqa: PLC0415 - help needs none of it

    shuffle: Mapping[str, Any] = {"random": True, "blocks": "blocks", "archive": False}
    data = _opened(source, fields, where)
    with working(f"measuring {source}", style) as progress:
        found = benching.bench(data, shuffle=shuffle[order], progress=progress, **named)
    if style.json:
        print_json(
            {
                "samples": len(data),
                "samples_per_second": dict(found.rates),
                "sample_bytes": found.sample_bytes,
                "limit": found.limit,
                "advice": found.advice,
            }
        )
        return
    rows = [
        [name, f"{rate:.0f}", f"{human_size(round(rate * found.sample_bytes))}/s"]
        for name, rate in found.rates.items()
    ]
    rows[-1][-1] = ""  # python moves no bytes
    print_rows(["run", "samples/s", "bytes"], rows)
    if not style.quiet:
        click.echo(f"{found.limit} is the limit; what may help: {found.advice}")
