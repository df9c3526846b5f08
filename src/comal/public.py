"""The public interface: lazy imports of names, and checks of arguments.

A package lists its public names once, with the module of each (`exports`). Calls through these
names raise no exceptions of Python or of a library for an argument of the wrong kind: only if a
call fails with a foreign exception, its arguments are compared with their annotations (`guarded`),
so that successful calls cost nothing.
"""

from __future__ import annotations

import errno
import inspect
import numbers
import os
import re
import sys
import types
import typing
import warnings
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from functools import wraps
from importlib import import_module
from itertools import islice
from typing import Any, TypeVar

from comal.errors import ComalError, InvalidInputError, of_system, reason_of, shown

_LOOKED_AT = 1000
"""How many items of a list or a mapping are checked to find the argument that does not fit."""

_EXPORT = re.compile(r"^    from (\S+) import (\w+) as \2\b", re.MULTILINE)
"""One name that a package exports, and the module that it comes from."""

_PACKAGE = os.path.dirname(__file__) + os.sep  # noqa: PTH120 - compared with names of files

T = TypeVar("T")


class Summary:
    """A dataclass that tells what a call did."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain data."""
        return asdict(typing.cast("Any", self))


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn the caller of comal: the warning gets the line that called it."""
    level = entered = 1
    frame = inspect.currentframe()
    while frame is not None:
        level, inside = level + 1, frame.f_code.co_filename.startswith(_PACKAGE)
        entered, frame = level if inside else entered, frame.f_back
    warnings.warn(message, category, stacklevel=entered)


def exports(
    package: str, *, guard: bool = True
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package that imports names at first use.

    Functions are `guarded`; `guard` is False if only other packages of comal call them.

    The names and their modules are those that the package imports only for type checkers, below
    ``if TYPE_CHECKING:``, one per line: ``from module import name as name``. No module of the
    package may have the name of a function: importing it would hide the function.

    A package that imports its modules itself would let threads that first import it, and one of
    its modules, wait for each other: Python then raises a ``_DeadlockError``.
    """
    text = inspect.getsource(sys.modules[package])
    homes = {name: home for home, name in _EXPORT.findall(text)}
    names = sorted(homes)

    def getattribute(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home == package:
            return import_module(f"{package}.{name}")
        value = getattr(import_module(home), name)
        if guard and inspect.isfunction(value) and value.__module__.startswith("comal."):
            value = _exported(value, package)
        setattr(sys.modules[package], name, value)
        return value

    return names, getattribute, lambda: names


def _exported(function: Any, package: str) -> Any:
    """The same guarded function for all packages that export it."""
    if not hasattr(function, "_exported"):
        function._exported = guarded(function)  # noqa: SLF001 - a mark of this module
        # Pickle finds it by this name.
        function._exported.__module__ = package  # noqa: SLF001
    return function._exported  # noqa: SLF001


def guarded(function: Callable[..., Any]) -> Any:
    """The function, with foreign exceptions turned into errors that name the argument at fault.

    The error names the first argument that does not fit its annotation. A foreign exception
    although all arguments fit is a bug, and passes unchanged.
    """
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def awaiting(*args: Any, **named: Any) -> Any:
            try:
                return await function(*args, **named)
            except _FOREIGN as error:
                _blame(function, args, named, error)
                raise

        return awaiting
    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def iterating(*args: Any, **named: Any) -> Any:
            try:
                return (yield from function(*args, **named))
            except _FOREIGN as error:
                _blame(function, args, named, error)
                raise

        return iterating

    @wraps(function)
    def calling(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except _FOREIGN as error:
            _blame(function, args, named, error)
            raise

    return calling


def guarded_class(cls: type[T]) -> type[T]:
    """The class with `guarded` constructor and public methods.

    Methods without arguments are not guarded.
    """
    for name, value in list(vars(cls).items()):
        if not inspect.isfunction(value) or len(inspect.signature(value).parameters) < 2:
            continue
        if not name.startswith("_") or name in _CALLED:
            setattr(cls, name, guarded(value))
    return cls


def takes(options: type) -> Callable[[T], T]:
    """Decorate a function whose further arguments are fields of a dataclass; see `options_of`."""

    def mark(function: T) -> T:
        function.takes = options  # type: ignore[attr-defined] # a mark of this module
        return function

    return mark


def options_of(options: type[T], given: Mapping[str, Any]) -> T:
    """The options of a caller as a dataclass.

    Raises
    ------
    InvalidInputError
        A name is not one of its fields.
    """
    known = options.__dataclass_fields__  # type: ignore[attr-defined]
    for name in given:
        if name not in known:
            raise InvalidInputError(
                "unknown option", found=repr(name), expected=", ".join(sorted(known))
            )
    return options(**given)


_CALLED = ("__init__", "__getitem__", "__call__")
_FOREIGN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    LookupError,
    MemoryError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)
"""They include errors of comal, which are built-in exceptions too; those pass."""


def _blame(
    function: Callable[..., Any], args: Any, named: Mapping[str, Any], error: Exception
) -> None:
    """Raise `InvalidInputError` for the first argument that does not fit, if any."""
    if isinstance(error, ComalError):
        return
    if isinstance(error, OSError) and error.errno is not None:
        # Errors of the operating system, such as for a name that is too long.
        what = "the operating system refuses it"
        where = shown(error.filename) if error.filename is not None else None
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.EISDIR, errno.ENOTDIR):
            raise InvalidInputError(what, where=where, found=reason_of(error)) from error
        raise of_system(error, what, where) from error
    try:
        bound = inspect.signature(function).bind(*args, **named).arguments
    except TypeError:
        return  # Python itself rejects the call, and names the argument
    hints = hints_of(function)
    texts = {**_fields(function), **function.__annotations__}
    for name, value in {**named, **bound}.items():
        if name in hints and not fits(value, hints[name]):
            raise _misfit(function, name, value, texts[name], hints[name]) from error


def _misfit(taker: Any, name: str, value: Any, text: Any, hint: Any) -> InvalidInputError:
    """The error for an argument of a function, or a field of a class, that does not fit."""
    if "Literal[" in str(hint):  # an alias hides its values
        is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
        parts = typing.get_args(hint) if is_union else (hint,)
        text = " | ".join(map(inspect.formatannotation, parts))
        text = re.sub(r"\b(typing|collections\.abc)\.", "", text)
    wide = isinstance(value, int) and not -(1 << 63) <= value < 1 << 63 and fits(0, hint)
    return InvalidInputError(
        f"{name} cannot be used",
        where=f"{taker.__qualname__}({name}=...)",
        found=f"{shown(repr(value))}, {type(value).__name__}",
        expected=f"{text}, from -2**63 to 2**63 - 1" if wide else str(text),
    )


def _fields(function: Callable[..., Any]) -> dict[str, Any]:
    """Annotations of the options that `takes` declared."""
    options = getattr(function, "takes", None)
    known = {} if options is None else options.__dataclass_fields__
    return {name: one.type for name, one in known.items()}


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Annotations of parameters as types, without variadic parameters."""
    hints = {}
    for name, text in function.__annotations__.items():
        parameter = inspect.signature(function).parameters.get(name)
        if parameter is None or parameter.kind in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        ):
            continue
        hints[name] = _type_of(text, inspect.unwrap(function).__globals__)
    for name, text in _fields(function).items():
        if name not in hints:
            hints[name] = _type_of(text, _names_of(function.takes, name))  # type: ignore[attr-defined]
    return hints


def _type_of(text: Any, names: dict[str, Any]) -> Any:
    """An annotation as a type; a `_Named` if it is only imported for type checkers."""
    if not isinstance(text, str):
        return text
    try:
        return eval(text, names)  # noqa: S307 - text of our own source
    except NameError:
        parts = [part.strip() for part in text.split("|")]
        if len(parts) > 1:
            return tuple(_type_of(part, names) for part in parts)
        return _Named(text.partition("[")[0].rpartition(".")[2])


def check_fields(options: Any) -> None:
    """Raise if a value of a dataclass does not fit the annotation of its field.

    Numbers of NumPy become those of Python: small ones overflow, and JSON has none of them.

    Raises
    ------
    InvalidInputError
        A value does not fit.
    """
    cls = type(options)
    for one in fields(cls):
        value, text = getattr(options, one.name), str(one.type)
        hint = _type_of(text, _names_of(cls, one.name))
        if not fits(value, hint):
            raise _misfit(cls, one.name, value, text, hint)
        if isinstance(value, numbers.Real) and hasattr(value, "item"):
            object.__setattr__(options, one.name, value.item())


def _names_of(cls: type, field: str) -> dict[str, Any]:
    """The names of the module that annotates a field of a class or of one of its bases."""
    home = next(base for base in cls.__mro__ if field in base.__annotations__)
    return vars(sys.modules[home.__module__])


class _Named(str):
    """The name of a class that is not imported."""

    __slots__ = ()


def fits(value: Any, hint: Any) -> bool:
    """Whether a value fits an annotation, as far as can be checked without consuming it."""
    if isinstance(hint, TypeVar):
        hint = hint.__bound__ or Any
    if hint is Any:
        return type(value) is not object  # a sentinel
    if isinstance(hint, _Named):
        return any(hint == cls.__name__ for cls in type(value).__mro__)
    origin = typing.get_origin(hint)
    if isinstance(hint, tuple) or origin in (typing.Union, types.UnionType):
        return any(fits(value, each) for each in typing.get_args(hint) or hint)
    if origin is typing.Literal:
        return any(type(value) is type(one) and value == one for one in typing.get_args(hint))
    if origin is not None or hint in (list, tuple, dict):
        how = _fits_array if getattr(origin, "__name__", "") == "ndarray" else _fits_generic
        return how(value, origin or hint, typing.get_args(hint))
    return _fits_plain(value, hint)


def _fits_array(value: Any, origin: Any, args: tuple[Any, ...]) -> bool:
    """Whether a value is an array of the type that ``NDArray[...]`` names, of any shape."""
    kinds = typing.get_args(args[1])
    return isinstance(value, origin) and (Any in kinds or issubclass(value.dtype.type, kinds))


def _fits_generic(value: Any, origin: Any, args: tuple[Any, ...]) -> bool:
    if origin is abc.Callable:
        return callable(value)
    if not issubclass(origin, abc.Iterable):
        return isinstance(value, origin) and (origin is type or not isinstance(value, type))
    if origin is tuple and args and args[-1] is not ...:
        return (
            isinstance(value, abc.Sequence)
            and len(value) == len(args)
            and all(map(fits, value, args))
        )
    if isinstance(value, str | bytes) or (origin is not abc.Mapping and isinstance(value, dict)):
        return False
    if issubclass(origin, abc.Mapping):
        return isinstance(value, abc.Mapping) and all(
            fits(key, kind) and fits(item, of)
            for key, item in islice(value.items(), _LOOKED_AT)
            for kind, of in [args or (Any, Any)]
        )
    if not isinstance(value, abc.Iterable):
        return False
    if not hasattr(value, "__getitem__") or not hasattr(value, "__len__"):
        return not issubclass(origin, abc.Sequence)  # an iterator may be used up
    return all(fits(item, args[0] if args else Any) for item in islice(value, _LOOKED_AT))


def _fits_plain(value: Any, hint: Any) -> bool:
    if hint is None:
        return value is None
    if hint is bool:
        return isinstance(value, bool) or type(value).__name__ == "bool"  # NumPy's is not a bool
    if hint is int:
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        return whole and -(1 << 63) <= value < 1 << 63
    if hint is float:
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return real and abs(value) <= sys.float_info.max
    if hint is str:
        return isinstance(value, str) and _is_text(value)
    if not isinstance(hint, type):
        return True
    if getattr(hint, "_is_protocol", False):
        members = {*vars(hint), *getattr(hint, "__annotations__", {})} - _OF_EVERY_PROTOCOL
        wanted = [name for name in members if not name.startswith("_") or name == "__call__"]
        return not isinstance(value, type) and all(hasattr(value, name) for name in wanted)
    return isinstance(value, hint)


_OF_EVERY_PROTOCOL = set(vars(typing.Protocol)) | {"__parameters__"}


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return "\0" not in value
