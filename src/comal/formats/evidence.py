"""What is looked at to tell a format."""

from __future__ import annotations

from dataclasses import dataclass

_LOCAL_FILE = b"PK\x03\x04"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is looked at: both ends of a file, or the names in a folder."""

    href: str
    head: bytes = b""
    tail: bytes = b""
    names: frozenset[str] = frozenset()
    footer: bytes = b""
    """Of a Parquet file the start of its footer, which holds the schema."""

    @property
    def text(self) -> bytes:
        """The head without what may stand before a JSON document."""
        return self.head.removeprefix(b"\xef\xbb\xbf").lstrip()

    @property
    def first_entry(self) -> bytes | None:
        """Name of the first entry of a ZIP, or None."""
        if not self.head.startswith(_LOCAL_FILE) or len(self.head) < 30:
            return None
        size = int.from_bytes(self.head[26:28], "little")
        return self.head[30 : 30 + size]
