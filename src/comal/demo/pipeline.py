"""The main job step by step: pack, query, read back, check, draw, and make a map of one raster."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from comal import raquet, taco, tapalcatl
from comal.convert import draw
from comal.demo import scenes
from comal.demo.scenes import IMAGE, MASK, Scenes
from comal.errors import InvalidMetadataError, counted
from comal.raster.pictures import encode_picture
from comal.storage import local_path, targets
from comal.storage.targetlock import Owns
from comal.storage.targets import Kind, check_ending
from comal.tapalcatl.writing.targets import TREE

ARCHIVE = "scenes.tacozip"
SHEET = "contact-sheet.png"
RASTER = "raster.parquet"
TILES = "tiles"
SEED = 20250101
MAPPED = f"cusco/{IMAGE}"
"""The image that becomes a map."""
_ROWS = 6
_COLUMNS = 3
_GAP = 14
_PAPER = (250, 246, 239)

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One step that was done, for display."""

    title: str
    text: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()


@dataclass(slots=True)
class Result:
    """The result of a run."""

    folder: Path
    archive: Path
    keys: list[str]
    pictures: list[Path]
    sheet: Path
    steps: list[Step] = field(default_factory=list)


Tell = Callable[[Step], object]


def run(
    out: str | os.PathLike[str] = "comal-demo",
    *,
    overwrite: bool = False,
    tell: Tell | None = None,
) -> Result:
    """Make up scenes, pack them, query them, read every one back, check the archive and draw it.

    Parameters
    ----------
    out
        Folder for the results. It appears when everything is done.
    overwrite
        Replace `out`, which must be the folder of an earlier run.
    tell
        Called with each step when it is done.

    Returns
    -------
    Result

    Raises
    ------
    ConflictError
        `out` already exists, or with `overwrite` is not the folder of an earlier run.
    InvalidMetadataError
        Pixels read back differ from the source, or the check found an error.
    """
    target = local_path(out, "the target")
    check_ending(target)
    with targets.new_folder(target, overwrite, DEMO) as folder:
        work = _Run(folder, target, tell)
        made = work.prepare()
        work.pack(made)
        with taco.load(folder / ARCHIVE) as dataset:
            work.query(dataset)
            work.read(dataset, made)
            work.check()
            drawn = work.draw(dataset)
        work.map(made)
    return Result(
        target,
        target / ARCHIVE,
        sorted(made.originals),
        [target / "pictures" / f"{name}.png" for name in drawn],
        target / SHEET,
        work.steps,
    )


def _claim(path: Path) -> Owns | None:
    """The names that belong to the folder of an earlier run; None for another folder."""
    if not (path / ARCHIVE).is_file():
        return None
    own = {ARCHIVE, SHEET, RASTER}
    for place in scenes.PLACES:
        own |= {f"scenes/{place.name}/{name}" for name in (IMAGE, MASK)}
        own.add(f"pictures/{place.name}.png")
    tiles = TREE.claim(path / TILES)

    def owns(name: str) -> bool:
        folder, _, below = name.partition("/")
        return name in own or (tiles is not None and folder == TILES and tiles(below))

    return owns


DEMO: Final = Kind("the folder of an earlier demo", _claim)


class _Run:
    """The steps of one run; `folder` becomes `target` at the end."""

    def __init__(self, folder: Path, target: Path, tell: Tell | None) -> None:
        self.folder = folder
        self.target = target
        self.steps: list[Step] = []
        self._tell = tell

    def step(self, title: str, text: str, columns: Sequence[str] = (), rows: Any = ()) -> None:
        shown = text.replace(str(self.folder), str(self.target))
        step = Step(title, shown, tuple(columns), tuple(tuple(row) for row in rows))
        self.steps.append(step)
        if self._tell is not None:
            self._tell(step)

    def prepare(self) -> Scenes:
        made = scenes.write_scenes(self.folder / "scenes", seed=SEED)
        text = (
            f"{len(scenes.PLACES)} made-up scenes of {scenes.SIZE} x {scenes.SIZE} pixels: "
            "four bands and a land cover mask each"
        )
        self.step("Rasters", text)
        return made

    def pack(self, made: Scenes) -> None:
        dataset = taco.Taco(
            tortilla=made.tortilla,
            id="comal-demo",
            dataset_version="1.0.0",
            description="Scenes that show what comal does",
            licenses=["CC0-1.0"],
            providers=[{"name": "comal demo", "roles": ["producer"]}],
            tasks=["semantic-segmentation"],
            title="comal demo",
        )
        dataset.extend_with({"demo:classes": made.classes})
        taco.create(dataset, self.folder / ARCHIVE)
        size = (self.folder / ARCHIVE).stat().st_size
        files = sum(path.stat().st_size for path in made.originals.values())
        self.step(
            "Pack",
            f"{counted(len(made.originals), 'file')} ({files / 1e6:.1f} MB) in one archive "
            f"({size / 1e6:.1f} MB): {self.folder / ARCHIVE}",
        )

    def query(self, dataset: Any) -> None:
        columns = ["id", "split", "cloud_cover"]
        sql = "SELECT * FROM data WHERE cloud_cover < 10 ORDER BY cloud_cover"
        self._answer("SQL", sql, dataset.sql(sql), columns)
        where = "179,-20 to -179,-15, across the antimeridian"
        self._answer("Box", where, dataset.filter_bbox(179, -20, -179, -15), columns)
        period = "2025-06-01/2025-08-31"
        self._answer("Time", period, dataset.filter_datetime(period), ["id", "stac:time_start"])

    def _answer(self, title: str, question: str, answer: Any, columns: list[str]) -> None:
        table = answer.data.to_arrow().select(columns)
        rows = [tuple(row.values()) for row in table[:_ROWS].to_pylist()]
        if table.num_rows > _ROWS:
            rows.append(("...",) + ("",) * (len(columns) - 1))
        noun = "sample" if table.num_rows == 1 else "samples"
        self.step(title, f"{question}: {table.num_rows} {noun}", columns, rows)

    def read(self, dataset: Any, made: Scenes) -> None:
        for key, vsi in leaf_paths(dataset):
            if not scenes.same_pixels(vsi, made.originals[key]):
                raise InvalidMetadataError(
                    "the pixels differ from the source", where=f"{key} ({vsi})"
                )
        self.step(
            "Read",
            f"{len(made.originals)} rasters through GDAL by byte range, pixels identical; "
            f"the last is {vsi}",
        )

    def check(self) -> None:
        report = taco.check(str(self.folder / ARCHIVE), level="full")
        _refuse_errors(report, "the archive")
        self.step(
            "Check",
            f"every byte: {counted(report.errors, 'error')}, {counted(report.warnings, 'warning')}",
        )

    def draw(self, dataset: Any) -> list[str]:
        """A picture of each sample, and all on one sheet; the names of the samples."""
        paths = dict(leaf_paths(dataset))
        names: list[str] = dataset.data.to_arrow().column("id").to_pylist()
        pictures = [_scene_picture(name, paths) for name in names]
        folder = self.folder / "pictures"
        folder.mkdir()
        for name, picture in zip(names, pictures, strict=True):
            (folder / f"{name}.png").write_bytes(encode_picture(picture, "png"))
        (self.folder / SHEET).write_bytes(contact_sheet(pictures))
        self.step("Pictures", f"{len(names)} in {folder}, all together in {self.folder / SHEET}")
        return names

    def map(self, made: Scenes) -> None:
        """Write one of the rasters as RaQuet, and its tiles for maps as Tapalcatl."""
        raster, tiles = self.folder / RASTER, self.folder / TILES
        # No pixel of the scenes is 0.
        written = raquet.write(made.originals[MAPPED], raster, resampling="bilinear", nodata=0)
        _refuse_errors(raquet.check(raster, level="full", statistics=True), "the RaQuet file")
        place, values = _value_in_the_middle(raster)
        self.step(
            "RaQuet",
            f"{MAPPED} as {counted(written.tiles, 'tile')} of zoom {written.min_zoom} to "
            f"{written.max_zoom}, one for each Parquet page; at {place[0]:.3f},{place[1]:.3f} it "
            f"is {values}: {raster}",
        )
        built = _as_tiles(raster, tiles)
        self.step(
            "Tapalcatl",
            f"{built.tiles} PNG tiles in {counted(built.archives, 'ZIP archive')}, each found by "
            f"meta.json alone: {tiles}",
        )


def leaf_paths(dataset: Any) -> list[tuple[str, str]]:
    """Key and GDAL path of every leaf, found level by level with `read`, as a user would."""
    found: list[tuple[str, str]] = []
    frames = [("", dataset.data)]
    for prefix, frame in frames:
        for name in frame.to_arrow().column("id").to_pylist():
            below = frame.read(name)
            if isinstance(below, str):
                found.append((prefix + name, below))
            else:
                frames.append((f"{prefix}{name}/", below))
    return found


def _scene_picture(name: str, paths: dict[str, str]) -> Array:
    """Image and mask side by side: uint8, shape (3, height, width)."""
    image = scenes.read_all(paths[f"{name}/{IMAGE}"])
    mask = scenes.read_all(paths[f"{name}/{MASK}"])[0]
    return np.concatenate([scenes.true_colour(image), scenes.colours(mask)], axis=2)


def contact_sheet(pictures: Sequence[Array]) -> bytes:
    """Pictures of one size on one sheet in reading order, as PNG."""
    _, height, width = pictures[0].shape
    rows = -(-len(pictures) // _COLUMNS)
    sheet = np.empty((3, rows * (height + _GAP) + _GAP, _COLUMNS * (width + _GAP) + _GAP), np.uint8)
    sheet[:] = np.array(_PAPER, np.uint8)[:, None, None]
    for number, picture in enumerate(pictures):
        row, column = divmod(number, _COLUMNS)
        top, left = _GAP + row * (height + _GAP), _GAP + column * (width + _GAP)
        sheet[:, top : top + height, left : left + width] = picture
    return encode_picture(sheet, "png")


def _value_in_the_middle(path: Path) -> tuple[tuple[float, float], tuple[Any, ...]]:
    """Longitude and latitude of the middle of a RaQuet file, and its value in each band."""
    with raquet.open(path) as file:
        west, south, east, north = file.bounds
        place = (west + east) / 2, (south + north) / 2
        return place, tuple(np.ma.asarray(file.point(*place, masked=True)).tolist())


def _as_tiles(raster: Path, folder: Path) -> Any:
    """Draw a RaQuet file as PNG tiles, and find each of them again by meta.json alone."""
    built = draw(raster, folder, bands=[3, 2, 1])  # the third band is red
    with tapalcatl.open(folder) as tiles:
        for key in tiles.keys().tolist():
            if tiles.tile(*key) is None:
                raise InvalidMetadataError("a tile cannot be found", where=f"{key} in {folder}")
    _refuse_errors(tapalcatl.check(folder, level="full"), "the tileset")
    return built


def _refuse_errors(report: Any, what: str) -> None:
    if report.errors:
        raise InvalidMetadataError(f"{what} has errors", problems=report.problems)
