from __future__ import annotations

import builtins
import errno
import pickle

import pytest

from comal import errors
from comal.errors import (
    AccessDeniedError,
    ComalError,
    ConflictError,
    InvalidMetadataError,
    ObjectNotFoundError,
    Problem,
    StorageError,
    counted,
    translated,
)


def leaves(kind: type[ComalError] = ComalError) -> list[type[ComalError]]:
    return [kind, *(leaf for sub in kind.__subclasses__() for leaf in leaves(sub))]


# What a caller may already catch, and the exit and status codes that scripts rely on.
CONTRACT = [
    ("ObjectNotFoundError", "FileNotFoundError", 3, 404),
    ("NotInContainerError", "KeyError", 3, 404),
    ("AccessDeniedError", "PermissionError", 4, 403),
    ("NotThisFormatError", "ValueError", 5, 422),
    ("UnsupportedVersionError", "ValueError", 5, 422),
    ("InvalidMetadataError", "ValueError", 6, 422),
    ("StorageError", "OSError", 7, 502),
    ("ShortReadError", "OSError", 7, 504),
    ("InvalidInputError", "ValueError", 2, 400),
    ("QueryError", "ValueError", 2, 400),
    ("MissingExtraError", "ImportError", 8, 501),
    ("UnsafeContentError", "ValueError", 9, 422),
    ("LimitExceededError", "ValueError", 9, 422),
    ("ObjectChangedError", "OSError", 10, 503),
    ("ConflictError", "FileExistsError", 10, 409),
]


@pytest.mark.parametrize(("name", "builtin", "exit_code", "status"), CONTRACT)
def test_kind(name: str, builtin: str, exit_code: int, status: int) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, ComalError)
    assert issubclass(kind, getattr(builtins, builtin))
    assert (kind.exit_code, kind.http_status) == (exit_code, status)


def test_every_kind_is_in_the_contract_and_has_its_own_code() -> None:
    kinds = leaves()
    assert {kind.__name__ for kind in kinds} == {"ComalError", *(row[0] for row in CONTRACT)}
    assert len({kind.code for kind in kinds}) == len(kinds)


@pytest.mark.parametrize("kind", leaves())
def test_pickle_keeps_every_field(kind: type[ComalError]) -> None:
    problem = Problem("taco-x", "row 3", "is odd")
    error = kind("what", where="here", found=1, expected=2, hint="do", problems=[problem], row=7)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert "row 3: is odd" in str(again)
    assert (again.where, again.found, again.expected, again.hint) == ("here", 1, 2, "do")
    assert (again.problems, again.fields) == ((problem,), {"row": 7})
    assert again.to_dict()["problems"][0]["severity"] == "error"


def test_text_says_what_where_found_expected_and_mend() -> None:
    error = StorageError("no room", where="x.zip", found="0 bytes", expected="7", hint="make room")
    assert str(error).splitlines() == [
        "no room: x.zip",
        "  found 0 bytes, expected 7",
        "  mend: make room",
    ]
    assert error.to_dict() == {
        "error": "StorageError",
        "code": "storage",
        "what": "no room",
        "where": "x.zip",
        "found": "0 bytes",
        "expected": "7",
        "hint": "make room",
    }


def test_translated_chains_the_cause() -> None:
    with (
        pytest.raises(StorageError, match="cannot write") as caught,
        translated({OSError: StorageError}, "cannot write", where="x"),
    ):
        raise OSError(28, "No space left on device")
    assert isinstance(caught.value.__cause__, OSError)
    assert "No space left" in str(caught.value)


def test_translated_lets_others_pass() -> None:
    with pytest.raises(ZeroDivisionError), translated({OSError: StorageError}, "x"):
        raise ZeroDivisionError
    with pytest.raises(InvalidMetadataError), translated({ValueError: StorageError}, "x"):
        raise InvalidMetadataError("ours stays ours")


@pytest.mark.parametrize("name", ["plain", "a\nb", "\u202egpj", "x" * 500, "\x1b[31m"])
def test_shown_names_are_printable_and_short(name: str) -> None:
    text = errors.shown(name)
    assert text.isascii()
    assert text.isprintable()
    assert len(text) <= 60


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (0, ("row",), "0 rows"),
        (1, ("row",), "1 row"),
        (2, ("row",), "2 rows"),
        (1_234_567, ("row",), "1,234,567 rows"),
        (1, ("entry", "entries"), "1 entry"),
        (2, ("entry", "entries"), "2 entries"),
    ],
)
def test_things_are_counted_in_words(number: int, words: tuple[str, ...], text: str) -> None:
    assert counted(number, *words) == text


def test_words_of_a_library_are_made_safe_to_print() -> None:
    with pytest.raises(StorageError) as caught, translated({OSError: StorageError}, "broken"):
        raise OSError("no type \x0e\x1b[2J\u202e here,\nnor 'Łódź' there")
    assert caught.value.found == r"no type \x0e\x1b[2J\u202e here, nor 'Łódź' there"


@pytest.mark.parametrize(
    ("code", "reading", "writing"),
    [
        (errno.ENOENT, ObjectNotFoundError, StorageError),
        (errno.ENOTDIR, ObjectNotFoundError, StorageError),
        (errno.EACCES, AccessDeniedError, AccessDeniedError),
        (errno.EEXIST, ConflictError, StorageError),
        (errno.EIO, StorageError, StorageError),
        (errno.ENOSPC, StorageError, StorageError),
    ],
)
def test_errors_of_the_system(
    code: int, reading: type[ComalError], writing: type[ComalError]
) -> None:
    for is_writing, kind in ((False, reading), (True, writing)):
        with (
            pytest.raises(ComalError) as caught,
            errors.system_errors("cannot", "/a", writing=is_writing),
        ):
            raise OSError(code, "words", "/b")
        found = caught.value
        assert (type(found), found.found, found.where) == (kind, "words", "/a")
        assert ("room" in (found.hint or "")) == (code == errno.ENOSPC)
