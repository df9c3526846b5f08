"""The hierarchy of errors.

Every error that leaves comal is a `ComalError`. Its subclasses are grouped by what a caller would
do about them, and each is also the built-in exception that the caller may already handle. An error
has fields besides its text, so that the command line, a server and a test can all handle it
without parsing a sentence.
"""

from __future__ import annotations

import errno
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

_NAME_WIDTH = 60
_PATH_WIDTH = 90
# Problems that the text of an error lists at most; `problems` has all of them.
_SHOWN = 20


def shown(name: object, width: int = _NAME_WIDTH) -> str:
    """A name that came from a file, made safe to print: ASCII only and at most `width` long."""
    text = ascii(without_secrets(name if isinstance(name, str) else str(name)))
    return text if len(text) <= width else text[: width - 4] + "..." + text[-1]


def shown_path(path: object) -> str:
    """A path made safe to print: ASCII only, and a long one without its middle."""
    text = shown(path, 1 << 16)[1:-1]
    return text if len(text) <= _PATH_WIDTH else f"{text[:30]}...{text[33 - _PATH_WIDTH :]}"


# RFC 3986, 3: scheme, user and password, host and path, query. Also for URLs inside of GDAL paths.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:/+)(?:[^\s/?#]*@)?([^\s?#'\"]*)(?:\?[^\s'\"]*)?")
_VSI = re.compile(r"(/vsi\w+)\?[^\s'\"]*")


def without_secrets(text: str) -> str:
    """The text with user, password and query removed from its URLs."""
    if "/vsi" in text:
        text = _VSI.sub(r"\1", text)
    return _URL.sub(r"\1\2", text) if ":/" in text else text


def _plain(value: Any) -> Any:
    return without_secrets(value) if isinstance(value, str) else value


def counted(number: int, what: str, several: str | None = None) -> str:
    """A number of things in words; `several` is the plural if it is not `what` with an s."""
    return f"{number:,} {what if number == 1 else several or what + 's'}"


def _printable(text: str) -> str:
    """A message of a library, which may contain bytes of the file, made safe to print."""
    if text.isprintable():
        return text
    lines = " ".join(text.splitlines())
    return "".join(mark if mark.isprintable() else ascii(mark)[1:-1] for mark in lines)


def compared(error: ComalError) -> list[str]:
    """What an error found and what it expected, as far as it tells."""
    told = (("found", error.found), ("expected", error.expected))
    return [f"{word} {value}" for word, value in told if value is not None]


class ComalError(Exception):
    """Root of all errors of comal.

    Parameters
    ----------
    what
        What went wrong, in a few words.
    where
        The object and the place in it: ``data.tacozip (bytes 26981+769)``, ``row 12``, a field.
    found, expected
        The value found and the value expected.
    hint
        How to fix it.
    problems
        Every `Problem` that was found, if there are several.
    **fields
        Anything else that a program may want, kept in `fields`.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 70
    http_status: ClassVar[int] = 500

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        found: object = None,
        expected: object = None,
        hint: str | None = None,
        problems: Sequence[Problem] | None = None,
        **fields: Any,
    ) -> None:
        # Texts about URLs may come from other libraries and contain secrets.
        what, where, hint = _plain(what), _plain(where), _plain(hint)
        super().__init__(what)
        self.what: str = what
        self.where: str | None = where
        self.found = _plain(found)
        self.expected = _plain(expected)
        self.hint: str | None = hint
        self.problems = tuple(problems or ())
        self.fields: dict[str, Any] = fields

    def __str__(self) -> str:
        first = f"{self.what}: {self.where}" if self.where else self.what
        lines = [first]
        if comparison := compared(self):
            lines.append("  " + ", ".join(comparison))
        if self.hint:
            lines.append("  mend: " + self.hint)
        lines += [f"  {problem.place}: {problem.message}" for problem in self.problems[:_SHOWN]]
        if len(self.problems) > _SHOWN:
            lines.append(f"  ... and {len(self.problems) - _SHOWN} more")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        named = {
            "where": self.where,
            "found": self.found,
            "expected": self.expected,
            "hint": self.hint,
            "problems": self.problems,
        }
        return _rebuild, (type(self), self.what, {**named, **self.fields})

    def to_dict(self) -> dict[str, Any]:
        """The error as plain data, as ``--json`` prints it."""
        data: dict[str, Any] = {"error": type(self).__name__, "code": self.code, "what": self.what}
        for key in ("where", "found", "expected", "hint"):
            value = getattr(self, key)
            if value is not None:
                data[key] = value if isinstance(value, int | float | bool) else str(value)
        if self.problems:
            data["problems"] = [problem.to_dict() for problem in self.problems]
        return data


def _rebuild(kind: type[ComalError], what: str, named: dict[str, Any]) -> ComalError:
    return kind(what, **named)


class ObjectNotFoundError(ComalError, FileNotFoundError):
    """The named object does not exist. Only this error means that it is absent."""

    code = "object-not-found"
    exit_code = 3
    http_status = 404


class NotInContainerError(ComalError, KeyError):
    """The container exists, but has no such key."""

    code = "not-in-container"
    exit_code = 3
    http_status = 404

    __str__ = ComalError.__str__


class AccessDeniedError(ComalError, PermissionError):
    """The object exists or may exist, and reading or writing it is not allowed."""

    code = "access-denied"
    exit_code = 4
    http_status = 403


class NotThisFormatError(ComalError, ValueError):
    """The bytes are not of the expected format, or of no format that comal knows."""

    code = "not-this-format"
    exit_code = 5
    http_status = 422


class UnsupportedVersionError(ComalError, ValueError):
    """The format is known, this version of it is not."""

    code = "unsupported-version"
    exit_code = 5
    http_status = 422


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and where.

    `code` is stable (``taco-offset-mismatch``), `severity` is ``error`` or ``warning``.
    """

    code: str
    place: str
    message: str
    severity: str = "error"

    def to_dict(self) -> dict[str, str]:
        """The problem as plain data, as ``comal check --json`` prints it."""
        return {
            "code": self.code,
            "severity": self.severity,
            "place": self.place,
            "message": self.message,
        }


class InvalidMetadataError(ComalError, ValueError):
    """Content is broken, or contradicts its description."""

    code = "invalid-metadata"
    exit_code = 6
    http_status = 422


class StorageError(ComalError, OSError):
    """The storage or the network failed: disk full, I/O error, retries used up."""

    code = "storage"
    exit_code = 7
    http_status = 502


class ShortReadError(StorageError):
    """Fewer bytes arrived than the object is known to have."""

    code = "short-read"
    http_status = 504


class ObjectChangedError(ComalError, OSError):
    """The object was replaced between two reads; bytes of two versions are never mixed."""

    code = "object-changed"
    exit_code = 10
    http_status = 503


class ConflictError(ComalError, FileExistsError):
    """The target exists already, or another process is writing it."""

    code = "conflict"
    exit_code = 10
    http_status = 409


class InvalidInputError(ComalError, ValueError):
    """An argument of the caller cannot be used."""

    code = "invalid-input"
    exit_code = 2
    http_status = 400


class QueryError(InvalidInputError):
    """A query that cannot be parsed, bound or run."""

    code = "query"


class UnsafeContentError(ComalError, ValueError):
    """A name or a path in the content would reach outside of where it belongs."""

    code = "unsafe-content"
    exit_code = 9
    http_status = 422


class LimitExceededError(ComalError, ValueError):
    """The content is larger or deeper than a limit allows; the hint says how to raise it."""

    code = "limit-exceeded"
    exit_code = 9
    http_status = 422


class MissingExtraError(ComalError, ImportError):
    """An optional library is not installed."""

    code = "missing-extra"
    exit_code = 8
    http_status = 501

    @classmethod
    def of(cls, library: str, extra: str, purpose: str) -> MissingExtraError:
        """The error for `library`, which ``pip install comal[extra]`` brings."""
        return cls(
            f"{purpose} needs {library}",
            hint=f"pip install 'comal[{extra}]'",
            library=library,
            extra=extra,
        )


def reason_of(error: BaseException) -> str:
    """The message of a foreign exception, made safe to print; its name if it has none."""
    if isinstance(error, OSError) and error.strerror:
        return _printable(error.strerror)  # number and path are of no use here
    line = traceback.format_exception_only(error)[-1].strip()
    return _printable(line.partition(": ")[2] or line)


_OF_SYSTEM: Mapping[type[OSError], type[ComalError]] = {
    FileNotFoundError: ObjectNotFoundError,
    NotADirectoryError: ObjectNotFoundError,
    PermissionError: AccessDeniedError,
    FileExistsError: ConflictError,
}
_FULL = (errno.ENOSPC, errno.EDQUOT)


def of_system(error: OSError, what: str, where: str | None, *, writing: bool = False) -> ComalError:
    """An error of the operating system as ours, with what to do about a full disk.

    Errors while `writing` are not about the object that the caller named.
    """
    if isinstance(error, ComalError):
        return error
    kind = next((ours for one, ours in _OF_SYSTEM.items() if isinstance(error, one)), StorageError)
    if writing and kind is not AccessDeniedError:
        kind = StorageError
    hint = "make room on the disk, or write to another one" if error.errno in _FULL else None
    return kind(what, where=where, found=reason_of(error), hint=hint)


@contextmanager
def system_errors(what: str, where: object, *, writing: bool = True) -> Iterator[None]:
    """Turn errors of the operating system into ours; `where` is a path."""
    try:
        yield
    except ComalError:
        raise
    except OSError as error:
        raise of_system(error, what, shown_path(where), writing=writing) from error


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Tell the object in errors of its content that do not name it, for one of several."""
    try:
        yield
    except ComalError as error:
        if where not in (error.where or ""):
            error.where = f"{where}: {error.where}" if error.where else where
        raise


@contextmanager
def translated(
    table: Mapping[type[BaseException], type[ComalError]], what: str, **named: Any
) -> Iterator[None]:
    """Turn a foreign exception into one of ours, chained to its cause.

    `table` is searched in order with `isinstance`; errors of comal and kinds that the table does
    not name pass through unchanged.
    """
    try:
        yield
    except ComalError:
        raise
    except tuple(table) as error:
        for kind, ours in table.items():
            if isinstance(error, kind):
                raise ours(what, **{"found": reason_of(error), **named}) from error
        raise  # pragma: no cover - the tuple above and the loop name the same kinds
