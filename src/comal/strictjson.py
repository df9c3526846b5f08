"""Untrusted JSON: parsed with limits, and rejected where parsers differ.

Python's parser accepts duplicate keys, NaN and numbers of any length. A document that means one
thing to us and another to the next reader is rejected here, before any format reads it.
"""

from __future__ import annotations

import json
import math
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from comal.errors import InvalidMetadataError, LimitExceededError
from comal.limits import DEFAULT_LIMITS, Limits

_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""The escape of a surrogate, which may be half of a pair."""
_PLAIN = bytes(
    0x30 if 0x30 <= byte <= 0x39 else 0x65 if byte in b"eE" else byte for byte in range(256)
)
"""All digits become ``0`` and both letters of an exponent ``e``: then plain strings are searched,
many times faster than a pattern."""
_LARGE = (b"0e00", b"0e+00", b"0" * 300)
"""Parts of numbers that may exceed a 64-bit float; Python reads those as infinity."""


def loads(
    data: bytes,
    where: str,
    limits: Limits = DEFAULT_LIMITS,
    *,
    constant: Callable[[str], Any] | None = None,
) -> dict[str, Any]:
    """Parse a UTF-8 JSON document whose root is an object.

    Parameters
    ----------
    data
        The document.
    where
        Its name in errors.
    limits
        Limits for size, depth and digits.
    constant
        Replaces ``NaN``, ``Infinity`` and ``-Infinity``, which are not JSON but are found in
        files, and numbers beyond a 64-bit float; they raise when None.

    Raises
    ------
    InvalidMetadataError
        Not UTF-8, not JSON, no object at the root, a duplicate key, NaN or infinity, or a number
        that exceeds a float.
    LimitExceededError
        Larger, deeper, or with longer integers than `limits` allows; checked before parsing.
    """
    limits.check("json_bytes", len(data), where)
    _check_depth(data, limits, where)
    plain = data.translate(_PLAIN)
    is_long = b"0" * (limits.json_digits + 1) in plain
    try:
        document = json.loads(
            str(data.removeprefix(BOM_UTF8), "utf-8"),
            object_pairs_hook=_unique_keys(where),
            parse_constant=constant or _refuse_constant(where),
            parse_float=_finite(constant or _refuse_constant(where))
            if any(part in plain for part in _LARGE)
            else None,
            parse_int=_bounded_int(where, limits) if is_long else None,
        )
    except UnicodeDecodeError as error:
        raise InvalidMetadataError(
            "JSON is not UTF-8", where=f"{where}, byte {error.start}", found=error.reason
        ) from error
    except json.JSONDecodeError as error:
        raise InvalidMetadataError(
            "not valid JSON",
            where=f"{where}, line {error.lineno} column {error.colno}",
            found=error.msg,
        ) from error
    if not isinstance(document, dict):
        raise InvalidMetadataError(
            "the JSON document is not an object", where=where, found=type(document).__name__
        )
    if b"\\u" in data and _HALF.search(data):
        _refuse_halves(document, where)
    return document


def dumps(document: dict[str, Any], *, indent: int | None = 4, ascii_only: bool = False) -> bytes:
    """The document as UTF-8 JSON with its keys in their order; raises for NaN."""
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only, allow_nan=False)
    return text.encode("utf-8")


def _check_depth(data: bytes, limits: Limits, where: str) -> None:
    if data.count(b"[") + data.count(b"{") <= limits.json_depth:
        return
    depth = 0
    for bracket in _brackets(data):
        if bracket in b"[{":
            depth += 1
            if depth > limits.json_depth:
                limits.check("json_depth", depth, where)
        else:
            depth -= 1


def _brackets(data: bytes) -> Iterable[int]:
    """The brackets outside of strings, in their order."""
    if b"\\" in data:
        firsts = (data[match.start()] for match in _STRING_OR_BRACKET.finditer(data))
        return (first for first in firsts if first != 0x22)
    # Without escapes, every other piece between quotes is outside of strings.
    return b"".join(data.split(b'"')[::2]).translate(None, _NO_BRACKETS)


def _refuse_halves(document: dict[str, Any], where: str) -> None:
    """Raise for half of a surrogate pair, which is not a character."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidMetadataError(
            "JSON holds half of a surrogate pair",
            where=where,
            found=ascii(error.object[error.start]),
            expected="both halves",
        ) from error


def _unique_keys(where: str) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        built = dict(pairs)
        if len(built) != len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise InvalidMetadataError("a JSON key appears twice", where=where, found=ascii(twice))
        return built

    return build


def _refuse_constant(where: str) -> Callable[[str], NoReturn]:
    def refuse(name: str) -> NoReturn:
        raise InvalidMetadataError(
            "JSON holds something that is not a JSON number", where=where, found=name
        )

    return refuse


def _finite(constant: Callable[[str], Any]) -> Callable[[str], Any]:
    def parse(digits: str) -> Any:
        number = float(digits)
        if math.isfinite(number):
            return number
        return constant("Infinity" if number > 0 else "-Infinity")

    return parse


def _bounded_int(where: str, limits: Limits) -> Callable[[str], int]:
    def parse(digits: str) -> int:
        count = len(digits.removeprefix("-"))
        if count > limits.json_digits:
            raise LimitExceededError(
                "a JSON integer is over the limit",
                where=where,
                found=f"{count} digits",
                expected=f"at most {limits.json_digits}",
            )
        return int(digits)

    return parse
