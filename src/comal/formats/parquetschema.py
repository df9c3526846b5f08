"""Names and types of the columns of a Parquet file, from the start of its footer.

Field numbers are those of ``parquet.thrift``. The schema stands in front of everything that grows
with the file, so the first bytes of a footer of any size are enough.
"""

from __future__ import annotations

from comal.errors import InvalidMetadataError
from comal.table.thrift import BINARY, I32, LIST, STRUCT, CompactReader

_KINDS = {2: "int64", 6: "bytes"}
_SCHEMA = 2


def columns(footer: bytes) -> dict[str, str]:
    """Type of each top-level column by its name: ``int64``, ``bytes`` or ``other``.

    Nothing for bytes that are no footer; what is read before an end that comes too soon counts.
    """
    reader = CompactReader(footer)
    found: dict[str, str] = {}
    try:
        for number, kind in reader.fields():
            if number == _SCHEMA and kind == LIST:
                _elements(reader, found)
                break
            reader.skip(kind)
    except (IndexError, InvalidMetadataError):
        pass
    return found


def _elements(reader: CompactReader, found: dict[str, str]) -> None:
    kind, size = reader.items()
    if kind != STRUCT or not size:
        return
    _element(reader)
    # Elements stand depth first: those below a column are passed over.
    below = 0
    for _ in range(size - 1):
        name, told, children = _element(reader)
        if below:
            below += children - 1
            continue
        found.setdefault(name, told)
        below = children


def _element(reader: CompactReader) -> tuple[str, str, int]:
    """SchemaElement: 1 type, 4 name, 5 number of children."""
    physical, name, children = -1, "", 0
    for number, kind in reader.fields():
        if number == 1 and kind == I32:
            physical = reader.integer()
        elif number == 4 and kind == BINARY:
            name = reader.binary().decode("utf-8", "replace")
        elif number == 5 and kind == I32:
            children = max(0, reader.integer())
        else:
            reader.skip(kind)
    return name, _KINDS.get(physical, "other") if not children else "other", children
