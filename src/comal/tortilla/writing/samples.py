"""Samples as objects: the door for data sets that are put together one sample at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comal.errors import InvalidInputError, counted, shown
from comal.public import guarded_class
from comal.samples.streams import payload_of
from comal.tortilla import spec
from comal.tortilla.writing.columns import check_extra


@dataclass(frozen=True, slots=True)
class STAC:
    """Place and time of a sample that is a raster.

    What is None is read from the raster when the sample is written, all but the times.

    Parameters
    ----------
    crs
        Authority code, such as ``EPSG:32718``.
    raster_shape
        Rows and columns.
    geotransform
        Six numbers in GDAL order: x0, dx, rotation, y0, rotation, dy.
    time_start, time_end
        Seconds since 1970 UTC, datetimes (naive ones are UTC) or ISO 8601 texts.
    centroid
        WKT point in EPSG:4326; computed from the other fields when None.
    """

    crs: str | None = None
    raster_shape: Sequence[int] | None = None
    geotransform: Sequence[float] | None = None
    time_start: Any = None
    time_end: Any = None
    centroid: str | None = None

    def columns(self) -> dict[str, Any]:
        """Values by column."""
        return {
            spec.CRS: self.crs,
            spec.GEOTRANSFORM: self.geotransform,
            spec.RASTER_SHAPE: self.raster_shape,
            spec.TIME_START: self.time_start,
            spec.TIME_END: self.time_end,
            spec.CENTROID: self.centroid,
        }


@dataclass(frozen=True, slots=True)
class RAI:
    """Values of responsible AI that the user has, as they are; see `Enrichment` to compute them.

    Elevation is in metres; `cisi`, `hdi` and `gmi` lie between 0 and 1. `ele` is another name of
    `elevation`.
    """

    elevation: float | None = None
    cisi: float | None = None
    gdp: float | None = None
    hdi: float | None = None
    gmi: float | None = None
    pop: float | None = None
    admin0: str | None = None
    admin1: str | None = None
    admin2: str | None = None
    ele: float | None = None

    def columns(self) -> dict[str, Any]:
        """Values by column."""
        elevation = self.ele if self.elevation is None else self.elevation
        values = {name: getattr(self, name.removeprefix("rai:")) for name in spec.RAI_REQUIRED[1:]}
        return {spec.ELEVATION: None if elevation is None else round(elevation), **values}


@guarded_class
class Sample:
    r"""One item of a Tortilla.

    Parameters
    ----------
    id
        Unique among its siblings; no ``/ \ :``, nothing that a file system refuses.
    file_format
        Name of the GDAL driver, ``BYTES`` or ``TORTILLA``; told from the first bytes when None.
    path
        The payload: a local path or URL, bytes, a file object opened for reading bytes, an
        iterator of bytes, a `Slice` of another file; or samples (a `Samples` or a list), which
        make it a nested Tortilla.
    data_split
        ``train``, ``validation`` or ``test``.
    stac_data, rai_data
        `STAC` and `RAI`, or mappings with their fields.
    **extra
        Further columns. Names with a colon are given as ``**{"ml:score": 1.0}``.

    Raises
    ------
    InvalidInputError
        A payload of the wrong type, or a column that may not be given.
    """

    __slots__ = ("data_split", "file_format", "id", "metadata", "path", "samples")

    def __init__(
        self,
        id: str,  # noqa: A002 - the name of the column
        file_format: str | None = None,
        path: Any = None,
        data_split: str | None = None,
        stac_data: STAC | Mapping[str, Any] | None = None,
        rai_data: RAI | Mapping[str, Any] | None = None,
        **extra: Any,
    ) -> None:
        if not isinstance(id, str):
            raise InvalidInputError(f"id {shown(id)} is no text", found=type(id).__name__)
        self.id = id
        self.data_split = data_split
        self.samples = _nested(path, id)
        self.path = None if self.samples is not None else payload_of(path)
        if self.samples is not None and file_format not in (None, spec.TORTILLA):
            raise InvalidInputError(
                f"samples of {shown(id)} cannot be a {shown(file_format)}", expected=spec.TORTILLA
            )
        self.file_format = spec.TORTILLA if self.samples is not None else file_format
        self.metadata: dict[str, Any] = {}
        for group, kind in ((stac_data, STAC), (rai_data, RAI)):
            if group is not None:
                self.metadata.update(_columns(group, kind))
        for name, value in extra.items():
            self.metadata[check_extra(name, f"sample {shown(id)}")] = value

    def __repr__(self) -> str:
        kind = self.file_format or "format not told"
        return f"Sample({self.id!r}, {kind}, {counted(len(self.metadata), 'column')})"


def _columns(group: Any, kind: type[STAC | RAI]) -> dict[str, Any]:
    if isinstance(group, Mapping):
        try:
            group = kind(**{str(key).partition(":")[2] or key: v for key, v in group.items()})
        except TypeError as error:
            raise InvalidInputError(f"not the fields of {kind.__name__}", found=error) from error
    if not isinstance(group, kind):
        raise InvalidInputError(
            f"not a {kind.__name__}", found=type(group).__name__, expected="it, or a mapping"
        )
    return {name: value for name, value in group.columns().items() if value is not None}


def _nested(path: Any, name: str) -> list[Sample] | None:
    if isinstance(path, Samples):
        return list(path)
    if isinstance(path, list | tuple) and (not path or isinstance(path[0], Sample)):
        if not path:
            raise InvalidInputError(
                "nested sample holds no samples", where=shown(name), expected="at least one"
            )
        return list(Samples(path))
    return None


class Samples:
    """Samples that belong together: a Tortilla before it is written.

    Parameters
    ----------
    samples
        At least one `Sample`.

    Raises
    ------
    InvalidInputError
        Something else, or nothing.
    """

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = list(samples)
        if not self._samples:
            raise InvalidInputError("no samples", expected="at least one")
        for sample in self._samples:
            if not isinstance(sample, Sample):
                raise InvalidInputError(
                    "not a sample", found=type(sample).__name__, expected="Sample"
                )

    def __len__(self) -> int:
        return len(self._samples)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._samples)

    def __repr__(self) -> str:
        return f"Samples({counted(len(self), 'sample')})"
