"""TACO and Tortilla: items, tables, trees, previews and the bytes of samples."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, ClassVar

import numpy as np  # noqa: TC002 - as everywhere
import numpy.typing as npt  # noqa: TC002
import pyarrow as pa
import pyarrow.compute as pc

from comal import raster
from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
    shown,
)
from comal.geo import times
from comal.geo.places import TIMES
from comal.limits import MIB, Limits
from comal.server import ogc
from comal.server.holdings import (
    FOLDER,
    ID,
    OTHER_MEDIA,
    TYPE,
    Holdings,
    LeafBytes,
    is_shown,
    rounded,
    visible,
)
from comal.server.http import hash_etag, text_etag
from comal.server.items import PARAMETERS as SELECTING
from comal.server.items import (
    TIME_ENDS,
    VALUE_SCHEMAS,
    Selection,
    column_of,
    column_stats,
    feature,
    features,
    kind_of,
    listed_columns,
    moments,
    quoted_path,
    shown_time,
    shown_values,
)
from comal.server.requests import ANY, Request, Route
from comal.server.responses import (
    GEOJSON,
    JSON,
    LOOKED_AT,
    SANDBOX,
    Content,
    Refusal,
    Response,
    content_response,
    json_bytes,
    json_response,
    not_found,
)
from comal.server.runtime import Runtime
from comal.server.sources import ServedSource, file_name, only, short_text
from comal.taco.reading.dataset import TacoDataset
from comal.tortilla.frame import TortillaFrame

_BLOCK = MIB
_CHECKED = 8 * MIB
"""Leaves up to this size are compared with their checksum before the first byte is sent."""
_NO_RASTER = 404, "not-a-raster", "there is no raster to show here"
_TOO_LARGE = (
    422,
    "limit-exceeded",
    "the raster is too large for a picture without overviews; ask for its bytes below data/",
)
_GEOJSON = GEOJSON.decode()
_SCHEMA = "application/schema+json"
_COUNTED = (*(name for name in SELECTING if name not in {"limit", "offset", "sortby"}), "bins")
_SPDX = re.compile(r"[A-Za-z0-9.+-]{1,64}")


def serve(
    name: str, title: str, reader: Any, kind: str, runtime: Runtime, version: str
) -> SamplesSource:
    """An archive of samples."""
    if isinstance(reader, TacoDataset):
        href = reader.location
    elif isinstance(reader, TortillaFrame):
        href = reader.files[0]
    else:
        raise NotThisFormatError("not a reader of samples", where=kind, found=type(reader).__name__)
    return SamplesSource(name, title or file_name(href), Holdings(reader, kind), runtime, version)


class SamplesSource(ServedSource):
    """An archive of samples under a name."""

    kind: ClassVar[str] = "samples"

    def __init__(
        self, name: str, title: str, holdings: Holdings, runtime: Runtime, version: str
    ) -> None:
        super().__init__(name, title, runtime, version)
        self.format = holdings.format
        self.holdings = holdings
        # Rows are read at once, so that a broken table fails when the archive is opened.
        self.table = holdings.table
        self._extent = self._extent_of()

    # -- documents ---------------------------------------------------------------------------------

    def summary(self) -> dict[str, Any]:
        """Name, extent, number of samples."""
        collection = self.holdings.collection
        name = self.name
        return {
            "name": name,
            "title": short_text(collection.get("title"))
            or short_text(collection.get("id"))
            or self.title,
            "description": short_text(collection.get("description")),
            "format": self.format,
            "kind": self.kind,
            "bounds": self._extent[0],
            "time": self._extent[1],
            "count": self.table.num_rows,
            "license": _license(collection.get("licenses")),
            "keywords": [one for one in _list(collection.get("keywords")) if short_text(one)],
            "attribution": None,
            "links": {
                "self": name,
                "collection": f"{name}/collection",
                "items": f"{name}/items",
                "table": f"{name}/table",
                "tree": f"{name}/tree",
                "columns": f"{name}/columns/{{name}}",
                "queryables": f"{name}/queryables",
                "data": f"{name}/data/{{path}}",
                "preview": f"{name}/preview/{{path}}",
            },
        }

    async def details(self) -> dict[str, Any]:
        """Levels, columns, the tree, and the collection."""
        collection = self.holdings.collection
        pit = collection.get("taco:pit_schema")
        return {
            "version": short_text(collection.get("taco_version")),
            "placed": self.holdings.is_placed,
            "timed": self.holdings.is_timed,
            "licenses": _list(collection.get("licenses")),
            "tasks": _list(collection.get("tasks") or collection.get("task")),
            "providers": _list(collection.get("providers")),
            "levels": self._levels(),
            "tree": pit if isinstance(pit, dict) else None,
            "python": self._lines(),
        }

    def _extent_of(self) -> tuple[list[float] | None, list[str | None] | None]:
        extent = self.holdings.collection.get("extent")
        extent = extent if isinstance(extent, dict) else {}
        bounds = _numbers(extent.get("spatial"))
        if bounds is None:
            box = self.holdings.bounds
            bounds = None if box is None else rounded(box)
        return bounds, _period(extent.get("temporal")) or self._period()

    def _period(self) -> list[str | None] | None:
        found: list[int] = []
        for name in (*TIMES, *TIME_ENDS):
            ends = pc.min_max(moments(self.table, name)).as_py().values()
            found += [end for end in ends if end is not None]
        return [shown_time(min(found)), shown_time(max(found))] if found else None

    def _levels(self) -> list[dict[str, Any]]:
        return [
            {
                "level": number,
                "rows": rows,
                "columns": [column_of(one) for one in schema if is_shown(one.name)],
            }
            for number, (rows, schema) in enumerate(self.holdings.levels())
        ]

    def _lines(self) -> str:
        """How to open it in Python."""
        if self.format == "taco":
            return f"from comal import taco\n\nrows = taco.load({self.title!r}).data"
        return f"from comal import tortilla\n\nrows = tortilla.open({self.title!r})"

    async def _collection(self, request: Request, rest: Sequence[str]) -> Response:
        only(rest, 0)
        del request
        return json_response(self.holdings.collection, headers=self.cache_control)

    async def _queryables(self, request: Request, rest: Sequence[str]) -> Response:
        only(rest, 0)
        properties = {
            field.name: VALUE_SCHEMAS[kind]
            for field in self.table.schema
            if field.name in visible(self.table)
            and (kind := kind_of(field.name, field.type)) in VALUE_SCHEMAS
        }
        document = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": request.link(f"collections/{self.name}/queryables"),
            "type": "object",
            "title": self.title,
            "properties": properties,
            "additionalProperties": False,
        }
        return json_response(document, kind=_SCHEMA.encode(), headers=self.cache_control)

    # -- rows --------------------------------------------------------------------------------------

    def _selected(self, request: Request) -> tuple[Selection, npt.NDArray[np.int64]]:
        selection = Selection.of(request.query, self.runtime.settings.limits.items)
        return selection, selection.rows(self.holdings)

    async def _items(self, request: Request, rest: Sequence[str]) -> Response:
        path = "/".join(rest)
        unknown = {name for name, _ in request.query.pairs} - set(SELECTING)
        if unknown:  # OGC API Features 1, 7.5: parameters not in the API document are refused
            raise InvalidInputError("there is no such parameter", found=shown(min(unknown)))
        if path:
            return await self._document(request, GEOJSON, self._item, request, path)
        return await self._document(request, GEOJSON, self._page, request)

    def _item(self, request: Request, path: str) -> dict[str, Any]:
        found = feature(self.holdings, self.name, self.holdings.find(path))
        self._linked(request, found)
        return found

    def _linked(self, request: Request, item: dict[str, Any]) -> None:
        path = quoted_path(item["comal:path"])
        for asset in item["assets"].values():
            asset["href"] = f"{request.public}/{asset['href']}"
        item["links"] = [
            ogc.link(request, "self", f"collections/{self.name}/items/{path}", _GEOJSON),
            *self._above(request),
        ]

    def _above(self, request: Request) -> list[dict[str, Any]]:
        home = f"collections/{self.name}"
        return [
            ogc.link(request, "parent", home, ogc.JSON),
            ogc.link(request, "collection", home, ogc.JSON),
            ogc.link(request, "root", "", ogc.JSON),
        ]

    def _page(self, request: Request) -> dict[str, Any]:
        selection, rows = self._selected(request)
        page = selection.page(rows)
        found = features(self.holdings, self.name, self.table.take(pa.array(page)))
        for item in found:
            self._linked(request, item)
        return {
            "type": "FeatureCollection",
            "numberMatched": len(rows),
            "numberReturned": len(found),
            "features": found,
            "links": self._page_links(request, selection, len(rows)),
            **self._placed_by(selection, rows),
        }

    def _placed_by(self, selection: Selection, rows: npt.NDArray[np.int64]) -> dict[str, list[str]]:
        """Whether footprints or centroids decided which rows are in the requested box."""
        if selection.bbox is None:
            return {}
        return {"comal:placed_by": list(self.holdings.places.decided(rows))}

    def _page_links(
        self, request: Request, selection: Selection, count: int
    ) -> list[dict[str, Any]]:
        path = f"collections/{self.name}/items"
        others = [pair for pair in request.query.pairs if pair[0] != "offset"]

        def to_page(rel: str, offset: int) -> dict[str, Any]:
            href = request.link(path, [*others, ("offset", str(offset))])
            return {"rel": rel, "type": _GEOJSON, "href": href}

        own = request.link(path, request.query.pairs)
        links = [
            {"rel": "self", "type": _GEOJSON, "href": own},
            *self._above(request),
        ]
        after = selection.next_offset(count)
        if after is not None:
            links.append(to_page("next", after))
        if selection.offset:
            links.append(to_page("prev", max(0, selection.offset - selection.limit)))
        return links

    async def _table(self, request: Request, rest: Sequence[str]) -> Response:
        only(rest, 0)
        return await self._document(request, JSON, self._rows, request)

    def _rows(self, request: Request) -> dict[str, Any]:
        selection, rows = self._selected(request)
        part = self.table.take(pa.array(selection.page(rows)))
        names = self._shown_columns(request.query.text("columns"))
        columns = [shown_values(part.column(name)) for name in names]
        schema = part.schema
        return {
            "columns": [column_of(schema.field(name)) for name in names],
            "rows": [list(row) for row in zip(*columns, strict=True)],
            "matched": len(rows),
            "returned": part.num_rows,
            "offset": selection.offset,
            "next": selection.next_offset(len(rows)),
            **self._placed_by(selection, rows),
        }

    def _shown_columns(self, wanted: str | None) -> list[str]:
        listed = listed_columns(self.table)
        if wanted is not None:
            chosen = [name.strip() for name in wanted.split(",")]
            unknown = [name for name in chosen if name not in listed]
            if unknown:
                raise InvalidInputError("there is no such column", found=shown(unknown[0]))
            listed = chosen
        return list(dict.fromkeys([ID, TYPE, *listed]))

    async def _columns(self, request: Request, rest: Sequence[str]) -> Response:
        name = "/".join(rest)
        bins = request.query.whole("bins", 32, 1, 512)

        def counted() -> dict[str, Any]:
            _, rows = self._selected(request)
            return column_stats(self.table, rows, name, bins)

        return await self._document(request, JSON, counted)

    async def _tree(self, request: Request, rest: Sequence[str]) -> Response:
        only(rest, 0)
        return await self._document(request, JSON, self._branch, request)

    def _branch(self, request: Request) -> dict[str, Any]:
        path = (request.query.text("path") or "").strip("/")
        most = self.runtime.settings.limits.items
        limit = min(request.query.whole("limit", 200, 1, 10**9), most)
        offset = request.query.whole("offset", 0, 0, 10**9)
        table, level = self.table, 0
        if path:
            row = self.holdings.find(path)
            if not row.is_folder:
                raise not_found("a FILE has nothing below it")
            table, level = self.holdings.table_of(self.holdings.children(row)), path.count("/") + 1
        part = table.slice(offset, limit)
        before = path + "/" if path else ""
        rows = zip(
            part.column(ID).to_pylist(),
            part.column(TYPE).to_pylist(),
            self.holdings.sizes(part),
            strict=True,
        )
        return {
            "path": path,
            "level": level,
            "total": table.num_rows,
            "returned": part.num_rows,
            "offset": offset,
            "next": offset + limit if offset + limit < table.num_rows else None,
            "children": [
                {
                    "id": name,
                    "path": None if name is None else before + name,
                    "type": kind,
                    "size": size if size is not None and size >= 0 else None,
                    "has_children": kind == FOLDER,
                }
                for name, kind, size in rows
            ],
        }

    async def _document(
        self, request: Request, kind: bytes, make: Callable[..., Any], *args: Any
    ) -> Response:
        """JSON made in a thread, with an entity tag, so that requests can be conditional."""
        body = await self.runtime.run(lambda: json_bytes(make(*args)))
        content = Content(kind, text_etag(body), len(body), body=body, headers=(LOOKED_AT,))
        return content_response(content, request.headers)

    # -- bytes -------------------------------------------------------------------------------------

    async def _data(self, request: Request, rest: Sequence[str]) -> Response:
        path = "/".join(rest)
        leaf = await self.runtime.run(self._leaf, path)
        kind = leaf.media.encode()
        disposition = b"attachment" if leaf.media == OTHER_MEDIA else b"inline"
        headers = (*self.cache_control, SANDBOX, (b"content-disposition", disposition))
        content = Content(
            kind, self._tag(leaf), leaf.size, self._reading(leaf), None, None, headers
        )
        answer = content_response(content, request.headers)
        if answer.status == 200 and leaf.size <= _CHECKED and not request.head:
            # The checksum covers all bytes, so it is compared if all of them are sent.
            answer.body, answer.blocks = await self.runtime.run(leaf.whole), None
        return answer

    def _leaf(self, path: str) -> LeafBytes:
        row = self.holdings.find(path)
        if row.is_folder:
            raise not_found("a FOLDER has no bytes of its own")
        return self.holdings.leaf(row)

    def _tag(self, leaf: LeafBytes) -> bytes:
        return hash_etag(f"{self.version}:{leaf.identity}".encode())

    def _reading(self, leaf: LeafBytes) -> Callable[[int, int], AsyncIterator[bytes]]:
        async def blocks(first: int, last: int) -> AsyncIterator[bytes]:
            with leaf.file() as file:
                await self.runtime.run(file.seek, first)
                left = last - first
                while left:
                    block = await self.runtime.run(file.read, min(_BLOCK, left))
                    if not block:
                        raise InvalidMetadataError("a sample ends early")
                    left -= len(block)
                    yield block

        return blocks

    async def _preview(self, request: Request, rest: Sequence[str]) -> Response:
        path = "/".join(rest)
        size = request.query.whole("size", 256, 8, 1024)
        bands = tuple(_band(text) for text in request.query.all("bidx")) or None
        key = (self.name, self.version, "preview", path, size, bands)

        async def made() -> bytes:
            return await self.runtime.run(self._picture, path, size, bands)

        body = await self.runtime.once(key, made)
        content = Content(
            b"image/png", hash_etag(body), len(body), body=body, headers=self.cache_control
        )
        return content_response(content, request.headers)

    def _picture(self, path: str, size: int, bands: tuple[int, ...] | None) -> bytes:
        """The picture of a row, or of the first raster below it."""
        most, refused = self.runtime.settings.limits.raster_bytes, _NO_RASTER
        for row in self.holdings.first_leaves(self.holdings.find(path)):
            leaf = self.holdings.leaf(row)
            if not self._is_raster(leaf):
                continue
            if leaf.size > most:
                refused = _TOO_LARGE
                continue
            limits = Limits(raster_bytes=most, leaf_bytes=most)
            try:
                return raster.preview(leaf.whole(), size=size, bands=bands, limits=limits)
            except LimitExceededError:
                refused = _TOO_LARGE
        raise Refusal(*refused)

    @staticmethod
    def _is_raster(leaf: LeafBytes) -> bool:
        with leaf.file() as file:
            head = file.read(16)
        try:
            raster.sniff_driver(head)
        except NotThisFormatError:
            return False
        return True

    routes: ClassVar[tuple[Route, ...]] = (
        Route("/{source}/collection", "The archive's own description", _collection),
        Route("/collections/{source}/items", "Samples", None, _GEOJSON, SELECTING),
        Route("/collections/{source}/items/{path}", "A sample", None, _GEOJSON),
        Route("/{source}/items", "Samples", _items, _GEOJSON, SELECTING),
        Route("/{source}/queryables", "Columns for filter", _queryables, _SCHEMA),
        Route("/{source}/table", "Rows", _table, query=(*SELECTING, "columns")),
        Route("/{source}/columns/{name}", "What a column holds", _columns, query=_COUNTED),
        Route("/{source}/tree", "Children of a folder", _tree, query=("path", "limit", "offset")),
        Route(
            "/{source}/preview/{path}",
            "A picture of a sample",
            _preview,
            "image/png",
            ("size", "bidx"),
        ),
        Route("/{source}/data/{path}", "The bytes of a sample", _data, ANY),
    )


def _band(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 5:
        return int(text)
    raise Refusal(400, "bad-request", "bidx must be the number of a band, counted from 1")


def _license(value: Any) -> str | None:
    """The licence, if there is one, and it is a name of SPDX, as STAC requires."""
    names = _list(value)
    if len(names) == 1 and isinstance(names[0], str) and _SPDX.fullmatch(names[0]):
        return str(names[0])
    return None


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value[:100] if isinstance(value, list) else [value]


def _numbers(value: Any) -> list[float] | None:
    """Four numbers, or the first of several boxes."""
    box = _first(value)
    if len(box) != 4 or not all(isinstance(edge, int | float) for edge in box):
        return None
    return [float(edge) for edge in box]


def _period(value: Any) -> list[str | None] | None:
    ends = [_moment(end) for end in _first(value)[:3]]
    return ends if len(ends) == 2 and any(ends) else None


def _first(value: Any) -> list[Any]:
    """A list, or the first of a list of them; an empty one for anything else."""
    value = value[0] if isinstance(value, list) and value and isinstance(value[0], list) else value
    return value if isinstance(value, list) else []


def _moment(value: Any) -> str | None:
    """An instant in RFC 3339, from text or microseconds."""
    try:
        return shown_time(times.parse_instant(value) if isinstance(value, str) else int(value))
    except (InvalidInputError, TypeError, ValueError):
        return None  # None, or not a time
