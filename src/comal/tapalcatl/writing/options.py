"""Options that several functions share, as rules for entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comal.geo.times import parse_instant
from comal.tapalcatl.sources.base import TileSource
from comal.tapalcatl.spec import Headers, parse_headers
from comal.tapalcatl.wire import new_variant
from comal.tapalcatl.writing.entries import FIXED, SOURCE, Rules, check_rules


def rules_of(
    tiles: TileSource, *, formats: Mapping[str, Any] | None, times: Any, **more: Any
) -> Rules:
    """Rules from the arguments of `build`."""
    given = {ext: _headers(headers) for ext, headers in (formats or {}).items()}
    if times not in {FIXED, SOURCE} and not isinstance(times, int):
        times = parse_instant(times) // 1_000_000
    headers = {key: tuple(value) for key, value in (more.pop("headers") or {}).items()}
    variant = more.pop("variant")
    rules = Rules(
        hint=tiles.hint,
        encoding=tiles.encoding,
        formats=given,
        times=times,
        modified=tiles.modified,
        headers=headers,
        variant=None if variant is None else new_variant(variant),
        **more,
    )
    check_rules(rules)
    return rules


def _headers(value: Any) -> Headers:
    if isinstance(value, str):
        return parse_headers(value, "formats")
    return tuple((str(name), str(text)) for name, text in value)
