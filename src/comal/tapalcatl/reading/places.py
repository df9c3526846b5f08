"""Where archives are: below a folder by a template, or by the keys of Tapalcatl 1."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from comal.errors import (
    InvalidMetadataError,
    ObjectNotFoundError,
    UnsafeContentError,
    shown,
)
from comal.storage import Source, open_again, open_beside, open_linked
from comal.tapalcatl.addressing import HASHES, Template
from comal.tapalcatl.generation1 import Generation1
from comal.tapalcatl.spec import Tile

_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|/")
_FIELD = re.compile(r"\{(\w+)\}")
_PATTERNS: Final = {"h": "[0-9a-f]{5}", "hash": "[0-9a-f]{5}"}
_DIGITS = "0|[1-9][0-9]{0,9}"
_UNSETTLED = 16
"""So many absent archives are looked for by all definitions of the hash before that is given up."""


class Places:
    """Where archives are."""

    root: Source
    """The folder of the archives, or the only one."""

    def candidates(self, tile: Tile) -> Sequence[Source]:
        """Where the archive of a root tile may be, each with pins of its own, best first."""
        raise NotImplementedError

    def chosen(self, number: int) -> None:
        """Take notice that an archive was found at this one of its candidates."""


class OneArchive(Places):
    """The place of a single archive."""

    def __init__(self, source: Source) -> None:
        self.root = source

    def candidates(self, tile: Tile) -> Sequence[Source]:  # noqa: ARG002 - there is but one
        """The archive itself."""
        return [open_again(self.root)]


class Tree(Places):
    """Archives below a folder, by the template of a tileset.

    Parameters
    ----------
    base
        The folder that `template` is relative to.
    template
        Without anything that leads out of `base`.
    kinds
        Definitions of ``{h}``, the likeliest first. With more than one they are tried until one
        has led to an archive, which is kept from then on.
    """

    def __init__(self, base: Source, template: Template, kinds: Sequence[str] = HASHES) -> None:
        self.base = self.root = base
        self.template = template
        self.kinds = tuple(kinds) if template.hashed else (template.hash,)
        self._tries = 0

    def address(self, tile: Tile, kind: str | None = None) -> str:
        """The address of an archive relative to the base."""
        return replace(self.template, hash=kind or self.kinds[0]).address(tile)

    def candidates(self, tile: Tile) -> Sequence[Source]:
        """The archive's place for each definition of the hash that may hold."""
        kinds = self.kinds
        if len(kinds) > 1:
            self._tries += 1
            kinds = kinds if self._tries <= _UNSETTLED else kinds[:1]
        base = open_again(self.base)
        return [base.child(self.address(tile, kind)) for kind in kinds]

    def chosen(self, number: int) -> None:
        """Keep the definition that has led to an archive."""
        self.kinds = self.kinds[number : number + 1]

    def listed(self) -> Iterator[Tile]:
        """Root tiles of all archives that are there.

        Raises
        ------
        StorageError
            Where nothing can be listed, as over HTTP.
        """
        yield from listed(self.base, self.template.text.removeprefix("./"))


class Tilezen(Places):
    """Archives of Tapalcatl 1 below a folder, a bucket or a prefix."""

    def __init__(self, base: Source, config: Generation1) -> None:
        self.base = self.root = base
        self.config = config

    def candidates(self, tile: Tile) -> Sequence[Source]:
        """The archive's place."""
        return [open_again(self.base).child(self.config.key(tile))]

    def listed(self) -> Iterator[Tile]:
        """Root tiles of all archives that are there; as `Tree.listed`."""
        values = {"prefix": self.config.prefix, "layer": self.config.layer, "fmt": "zip"}

        def fixed(match: re.Match[str]) -> str:
            return values.get(match[1], match[0]).strip("/")

        pattern = _FIELD.sub(fixed, self.config.pattern)
        yield from listed(self.base, "/".join(part for part in pattern.split("/") if part))


def tree_of(
    meta: Source,
    text: str | None,
    where: str,
    kinds: Sequence[str],
    layer: str,
    *,
    by_caller: bool = False,
) -> Tree:
    """The archives that the template `text` of a tileset leads to.

    Parameters
    ----------
    meta
        The tileset's document, to which a relative template is relative.
    by_caller
        The template is not the document's own: the caller may name any place.

    Raises
    ------
    InvalidMetadataError
        No template, or one that cannot be used.
    UnsafeContentError
        A relative template that leaves its folder.
    AccessDeniedError
        A document from a server or a store that names a place elsewhere, as `open_linked` has it.
    """
    if text is None:
        raise InvalidMetadataError(
            "tileset does not say where its archives are",
            where=where,
            expected="a template called source",
            hint="pass source='{z}/{x}/{y}.zip'",
        )
    Template(text)
    if not _ABSOLUTE.match(text):
        base = meta.sibling(".")
        relative = "/".join(part for part in text.split("/") if part not in {"", "."})
        _check_relative(base, relative, where)
        return Tree(base, Template(relative, layer=layer), kinds)
    head, relative = _split(text, where)
    base = open_beside(meta, head) if by_caller else open_linked(meta, head)
    return Tree(base, Template(relative, layer=layer), kinds)


def _split(text: str, where: str) -> tuple[str, str]:
    """An absolute template as the folder before the first field, and the rest."""
    head, slash, _ = text[: text.index("{")].rpartition("/")
    if not slash or "?" in text or "#" in text or (head.endswith(":/") and "://" in text):
        raise InvalidMetadataError(
            "template of archives cannot be used",
            where=f"{where}, source",
            found=shown(text),
            expected="fields in the path alone",
        )
    return head or "/", text[len(head) + 1 :]


def _check_relative(base: Source, relative: str, where: str) -> None:
    if ".." in relative.split("/"):
        raise UnsafeContentError(
            "template of archives leaves its folder",
            where=f"{where}, source",
            found=shown(relative),
            expected=f"archives below {base.href}",
            hint="pass source= with an absolute place if that is meant",
        )


def listed(base: Source, pattern: str) -> Iterator[Tile]:
    """Root tiles of the archives below `base` whose names follow `pattern`.

    Raises
    ------
    StorageError
        Where nothing can be listed, as over HTTP.
    """
    yield from _walk(base, pattern.split("/"), "", {})


def _walk(base: Source, parts: Sequence[str], folder: str, known: dict[str, str]) -> Iterator[Tile]:
    match, last = _matcher(parts[0], known), len(parts) == 1
    try:
        names = base.names(folder)
    except ObjectNotFoundError:
        return
    found = []
    for name in names:
        fields = match(name.removesuffix("/")) if name.endswith("/") != last else None
        if fields is not None:
            found.append((_numeric(fields), name.removesuffix("/"), {**known, **fields}))
    for _, name, fields in sorted(found, key=lambda one: one[:2]):
        path = f"{folder}/{name}" if folder else name
        if not last:
            yield from _walk(base, parts[1:], path, fields)
        elif {"z", "x", "y"} <= fields.keys():
            yield int(fields["z"]), int(fields["x"]), int(fields["y"])


def _numeric(fields: dict[str, str]) -> tuple[int, ...]:
    return tuple(int(fields[name]) for name in "zxy" if name in fields)


def _matcher(part: str, known: dict[str, str]) -> Callable[[str], dict[str, str] | None]:
    pieces: list[str] = []
    at = 0
    for match in _FIELD.finditer(part):
        name = match[1]
        pieces.append(re.escape(part[at : match.start()]))
        if name in known or f"(?P<{name}>" in "".join(pieces):
            pieces.append(re.escape(known[name]) if name in known else f"(?P={name})")
        else:
            pieces.append(f"(?P<{name}>{_PATTERNS.get(name, _DIGITS)})")
        at = match.end()
    pieces.append(re.escape(part[at:]))
    expression = re.compile("".join(pieces))

    def matched(name: str) -> dict[str, str] | None:
        found: Any = expression.fullmatch(name)
        return None if found is None else dict(found.groupdict())

    return matched
