"""SAMPLE: an id, a payload and metadata (TACO 2.0, 5.2 and 7.1.1).

A `Sample` is a thin front of the columnar code: it checks what can be wrong in one sample alone
and keeps plain values. Columns are built when a tortilla of samples becomes a level.
"""

from __future__ import annotations

import os
import re
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from comal import names
from comal.errors import InvalidInputError, StorageError, counted, reason_of, shown
from comal.public import guarded_class
from comal.storage import local_path
from comal.storage.targetlock import process_scratch
from comal.taco import spec
from comal.taco.columns import as_table, check_key, column
from comal.taco.model.levels import bad_id

if TYPE_CHECKING:
    from comal.taco.model.tortilla import Tortilla

# Ids that are certainly valid. All others go through the rules of `comal.names`.
_PLAIN = re.compile(r"(?!__)[A-Za-z0-9_](?:[A-Za-z0-9_.\-]{0,198}[A-Za-z0-9_\-])?")
_DEVICE_PREFIXES = frozenset({"con", "prn", "aux", "nul", "com", "lpt"})


@guarded_class
class Sample:
    r"""One sample: a FILE with bytes, or a FOLDER with a tortilla.

    Parameters
    ----------
    id
        Unique among its siblings; no ``/ \\ :``, no leading ``__``, nothing that a file system
        refuses.
    path
        A local file, the payload itself as bytes, or a `Tortilla`.
    type
        ``FILE``, ``FOLDER`` or ``auto``: files and bytes are FILE, a tortilla is FOLDER.
    temp_dir
        Folder for a temporary file that holds a payload given as bytes, instead of memory. The
        file is removed with the sample, or by `cleanup`; that of a killed process by ``comal
        clean`` of the folder.
    **metadata
        Fields: letters, digits and ``_``, with at most one ``:`` for a namespace.

    Raises
    ------
    InvalidInputError
        A bad id, path, type or field name.

    Attributes
    ----------
    metadata
        The fields with their values, in the order in which they were added. They can also be read
        as attributes, unless a method has that name.
    """

    __slots__ = ("__weakref__", "_fields", "_remove", "id", "metadata", "path", "type")

    id: str
    path: str | bytes | Tortilla
    type: spec.SampleType
    metadata: dict[str, Any]

    def __init__(
        self,
        id: str,  # noqa: A002 - the name that the specification gives it
        path: str | os.PathLike[str] | bytes | bytearray | memoryview | Tortilla,
        type: str = "auto",  # noqa: A002 - as above
        temp_dir: str | os.PathLike[str] | None = None,
        **metadata: Any,
    ) -> None:
        self.metadata = metadata
        self._fields: dict[str, Any] | None = None
        self._remove: Callable[[], object] | None = None
        check_id(id)
        self.id = id
        for key in metadata:
            check_key(key)
        self.path, found = _payload(path)
        if type not in {"auto", found}:
            raise InvalidInputError(
                f"sample {shown(id)} cannot be a {shown(type)}",
                found=f"a path that makes the sample a {found}",
                expected=f"type='auto' or type={found!r}",
            )
        self.type = found
        if temp_dir is not None and isinstance(self.path, bytes):
            self._spill(self.path, temp_dir)

    def __getattr__(self, name: str) -> Any:
        if name not in Sample.__slots__ and name in self.metadata:
            return self.metadata[name]
        raise AttributeError(f"the sample has no field {name!r}")

    def __repr__(self) -> str:
        return f"Sample({self.id!r}, {self.type}, {counted(len(self.metadata), 'field')})"

    def _spill(self, data: bytes, temp_dir: str | os.PathLike[str]) -> None:
        within = local_path(temp_dir, "the folder for temporary files")
        try:
            folder = process_scratch(within)
            folder.mkdir(0o700, exist_ok=True)  # if somebody has removed it
            descriptor, path = tempfile.mkstemp(dir=folder)
        except OSError as error:
            raise _no_temporary(error, str(within)) from error
        self._remove = weakref.finalize(self, _unlink, path, os.getpid())
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
        except OSError as error:
            self.cleanup()
            raise _no_temporary(error, path) from error
        self.path = path

    def cleanup(self) -> None:
        """Remove the temporary file, if any; the sample can then no longer be written."""
        if self._remove is not None:
            self._remove()
            self._remove = None

    def extend_with(self, extension: Any, name: str | None = None) -> Self:
        """Add metadata fields.

        Parameters
        ----------
        extension
            A mapping, an Arrow table or polars frame of one row, a pydantic model, a
            `SampleExtension`, or any function of a sample that returns one of these.
        name
            Namespace for the fields: ``name:field``. A pydantic model without one uses its class
            name in lower case.

        Returns
        -------
        Sample
            This sample.

        Raises
        ------
        InvalidInputError
            A field with an invalid name, one that exists already, or a table that does not have
            one row.
        """
        for key, value, field in fields_of(extension, self, "sample", name):
            check_key(key)
            if key in self.metadata:
                raise InvalidInputError(
                    f"field {shown(key)} exists already",
                    where=f"sample {shown(self.id)}",
                    hint=f"call pop({key!r}) first to replace the field",
                )
            self.put(key, value, field)
        return self

    def put(self, key: str, value: Any, field: Any) -> None:
        """Set a field, and its declaration by an extension: an Arrow field or None."""
        self.metadata[key] = value
        if field is not None:
            self._fields = {**(self._fields or {}), key: field}

    def pop(self, field: str) -> Any:
        """Remove a field and return its value.

        Raises
        ------
        InvalidInputError
            There is no such field.
        """
        if field not in self.metadata:
            raise InvalidInputError(f"no field {shown(field)}", where=f"sample {shown(self.id)}")
        if self._fields:
            self._fields = {key: kind for key, kind in self._fields.items() if key != field}
        return self.metadata.pop(field)

    def declared(self, field: str) -> Any:
        """The Arrow field that an extension declared for `field`, or None."""
        return self._fields.get(field) if self._fields else None

    def export_metadata(self) -> Any:
        """The sample as an Arrow table of one row: id, type, path (null for bytes), fields."""
        path = self.path if isinstance(self.path, str) else None
        columns = [pa.array([value], pa.string()) for value in (self.id, self.type, path)]
        fields = [pa.field(key, pa.string()) for key in (spec.ID, spec.TYPE, spec.PATH)]
        for key, value in self.metadata.items():
            declared = self.declared(key)
            kind = None if declared is None else declared.type
            columns.append(column(key, [value], lambda _: self.id, declared=kind))
            fields.append(declared or pa.field(key, columns[-1].type))
        return pa.table(columns, schema=pa.schema(fields))


def check_id(name: object) -> None:
    """Refuse one id at once; whole columns go through `levels.check_ids`."""
    if not isinstance(name, str):
        raise InvalidInputError(f"id {shown(name)} is not text", found=type(name).__name__)
    if _PLAIN.fullmatch(name) and name[:3].lower() not in _DEVICE_PREFIXES:
        return
    reason = names.illegal(name) or names.risky(name)
    if reason is not None:
        raise bad_id(name, reason)


def _payload(path: Any) -> tuple[str | bytes | Tortilla, spec.SampleType]:
    if isinstance(path, bytes):
        return path, spec.FILE
    if isinstance(path, str | os.PathLike):
        text = os.fspath(path)
        if not isinstance(text, str) or not text or "\0" in text:
            raise InvalidInputError(
                "the path of a sample is empty or not a path", found=shown(text)
            )
        if text[0] == "/":
            return text, spec.FILE
        if "://" in text:
            raise InvalidInputError(
                "the path of a sample is not local",
                found=shown(text, 120),
                hint="fetch the file first, or pass its bytes",
            )
        # A later change of the working folder must not change the sample.
        return os.path.abspath(text), spec.FILE  # noqa: PTH100
    if isinstance(path, bytearray | memoryview):
        return bytes(path), spec.FILE
    if hasattr(path, "strict_schema"):
        return path, spec.FOLDER
    raise InvalidInputError(
        "the path of a sample has the wrong type",
        found=type(path).__name__,
        expected="a path, bytes or a Tortilla",
    )


def fields_of(
    extension: Any, owner: Any, what: str, name: str | None = None
) -> Iterator[tuple[str, Any, Any]]:
    """The fields of an extension of a sample or dataset, as (key, value, Arrow field or None)."""
    if isinstance(extension, type):
        raise InvalidInputError(
            f"a class cannot extend a {what}",
            where=f"{what} {shown(owner.id)}",
            found=extension.__name__,
            hint=f"pass an instance: {extension.__name__}(...)",
        )
    if hasattr(extension, "model_dump") and not callable(extension):
        if what == "sample":
            name = name or type(extension).__name__.lower()
        extension = extension.model_dump()
    if isinstance(extension, Mapping):
        prefix = f"{name}:" if name else ""
        yield from ((f"{prefix}{key}", value, None) for key, value in extension.items())
    elif (table := as_table(extension)) is not None:
        if table.num_rows != 1:
            raise InvalidInputError(
                "a table of fields must have one row",
                where=f"{what} {shown(owner.id)}",
                found=counted(table.num_rows, "row"),
            )
        for found, values in zip(table.schema, table.columns, strict=True):
            field = _plain_field(found, name)
            yield field.name, values[0].as_py(), field
    elif callable(extension):
        result = extension(owner)
        if callable(result) and not hasattr(result, "__arrow_c_stream__"):
            raise InvalidInputError(
                "the extension returned a function", found=type(result).__name__
            )
        yield from fields_of(result, owner, what, name)
    else:
        raise InvalidInputError(
            f"a {what} cannot be extended with a value of this type",
            found=type(extension).__name__,
            expected="a mapping, a table of one row, a pydantic model, an extension or a function",
        )


@lru_cache(maxsize=4096)
def _plain_field(field: Any, name: str | None) -> Any:
    """The field as stored; cached, so that all samples of an extension share one object."""
    key = f"{name}:{field.name}" if name else field.name
    return field.with_name(key)


def _no_temporary(error: OSError, where: str) -> StorageError:
    return StorageError(
        "a temporary file for a sample cannot be written", where=where, found=reason_of(error)
    )


def _unlink(path: str, pid: int) -> None:
    if pid == os.getpid():  # a forked process must not remove it
        Path(path).unlink(missing_ok=True)
