"""Bytes that go to the end of a file, and how far they got."""

from __future__ import annotations

from typing import Any, BinaryIO

from comal.errors import ComalError, StorageError, translated

_DISK: dict[type[BaseException], type[ComalError]] = {OSError: StorageError}


class Appender:
    """Writes to the end of a seekable binary file.

    Parameters
    ----------
    file
        Opened for writing; its position is moved to `position`.
    position
        Offset of the first byte that is written.
    """

    def __init__(self, file: BinaryIO, position: int = 0) -> None:
        self.file = file
        self.position = position
        with translated(_DISK, "target cannot be written"):
            file.seek(position)

    def write(self, data: Any) -> None:
        """Write all of `data`, also to a file that takes less than it is given."""
        left = memoryview(data).cast("B") if len(data) else memoryview(b"")
        self.position += len(left)
        with translated(_DISK, "target cannot be written"):
            while left:
                left = left[self.file.write(left) :]

    def patch(self, offset: int, data: bytes) -> None:
        """Write over what is there already and come back."""
        with translated(_DISK, "target cannot be written"):
            self.file.seek(offset)
            self.file.write(data)
            self.file.seek(self.position)
