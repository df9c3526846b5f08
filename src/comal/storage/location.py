"""Locations of objects: parsing, building and safely joining hrefs.

The part of a location that names the object is kept in the spelling of its scheme: a plain path
for files, the percent-encoded path for HTTP, the plain key for object stores. An ``hf://`` href is
the public URL of a file on a Hugging Face Hub.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from comal.errors import (
    AccessDeniedError,
    InvalidInputError,
    UnsafeContentError,
    shown,
    shown_path,
    without_secrets,
)

_HUB = "hf"
_ENDPOINT = "https://huggingface.co"
# [datasets/ or spaces/]owner/name[@revision]/path, as the Hub's own clients write it. A revision
# with a slash is percent-encoded, or one of the names that the Hub itself gives.
_HREF = re.compile(
    r"(?P<kind>datasets/|spaces/)?(?!datasets/|spaces/)(?P<repository>\w[\w.-]*/\w[\w.-]*)"
    r"(?:@(?P<revision>refs/(?:convert/\w+|pr/\d+)|[^/@]+))?/(?P<path>[^?#]+)"
)


def _hub_url(rest: str) -> str:
    """The URL for the part of an href after ``hf://``: ``datasets/owner/name[@revision]/path``.

    Without ``datasets/`` it is a model repository; the default revision is ``main``. The variable
    ``HF_ENDPOINT`` of the environment names another Hub.
    """
    match = _HREF.fullmatch(rest)
    parts = unquote(match["path"]).split("/") if match is not None else []
    if match is None or not {"", ".", ".."}.isdisjoint(parts):
        raise InvalidInputError(
            "not a file on the Hub",
            where=shown(f"{_HUB}://{rest}"),
            expected="hf://datasets/owner/name/path or hf://datasets/owner/name@revision/path",
        )
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or _ENDPOINT
    revision = quote(unquote(match["revision"] or "main"), safe="")
    path = "/".join(quote(part, safe="") for part in parts)
    return f"{endpoint}/{match['kind'] or ''}{match['repository']}/resolve/{revision}/{path}"


FILE = "file"
HTTP_SCHEMES = ("http", "https")
STORE_SCHEMES = ("s3", "gs", "az", "memory")

_ALIASES = {"s3a": "s3", "gcs": "gs", "abfs": "az", "abfss": "az", "azure": "az"}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_DEFAULT_PORTS = {"http": 80, "https": 443}
# Characters allowed in an HTTP path (RFC 3986, 3.3), and '%', which is encoding already.
_HTTP_SAFE = "/%:@!$&'()*+,;=~-._"


@dataclass(frozen=True, slots=True)
class Location:
    """A file, an HTTP resource, a key in a store, or a folder or prefix of these."""

    scheme: str
    """`file`, `http`, `https`, `s3`, `gs`, `az` or `memory`."""
    root: str
    """Empty for files, ``host[:port]`` for HTTP, the bucket or container for stores."""
    path: str
    """Absolute path, percent-encoded URL path, or key without a leading slash."""
    query: str = field(default="", repr=False)
    """Query string of an HTTP URL, without the question mark; it may be a signature."""
    userinfo: str = field(default="", repr=False)
    """``user:password`` of an HTTP URL."""
    withheld: bool = field(default=False, repr=False)
    """Whether a pickle has left out `query` and `userinfo`; then requests raise an error."""
    href: str = field(init=False, repr=False, compare=False)
    """The normalised URL without user, password and query, or the absolute path of a file."""
    is_local: bool = field(init=False, repr=False, compare=False)
    """Whether this is a file or folder of this machine."""

    def __post_init__(self) -> None:
        href = self.path
        if self.scheme != FILE:
            slash = "" if self.scheme in HTTP_SCHEMES else "/"
            href = f"{self.scheme}://{self.root}{slash}{self.path}"
        object.__setattr__(self, "href", href)
        object.__setattr__(self, "is_local", self.scheme == FILE)

    @property
    def origin(self) -> str:
        """Whom credentials belong to: ``https://host[:port]``, ``s3://bucket``, ``file://``."""
        return f"{self.scheme}://{self.root}"

    @property
    def label(self) -> str:
        """The location for messages: printable, not too long, and without secrets."""
        return shown_path(self.href)

    def __str__(self) -> str:
        return self.label

    def __reduce__(self) -> tuple[Any, ...]:
        plain = self.scheme, self.root, self.path
        if not (self.query or self.userinfo or self.withheld):
            return Location, plain
        return _located, (*plain, Sealed(None if self.withheld else (self.query, self.userinfo)))

    @property
    def url(self) -> str:
        """The URL for HTTP requests, with its query; the only text that may hold a secret.

        Raises
        ------
        AccessDeniedError
            The query was left out of a pickle.
        """
        if self.withheld:
            raise no_secrets(self.label)
        return f"{self.href}?{self.query}" if self.query else self.href

    @property
    def variant(self) -> str:
        """Distinguishes objects whose URLs differ only in their query."""
        if not self.query:
            return ""
        from hashlib import blake2b  # noqa: PLC0415 - few URLs have a query

        return blake2b(self.query.encode(), digest_size=8).hexdigest()

    def join(self, relative: str) -> Location:
        """The location `relative` below this one.

        Raises
        ------
        UnsafeContentError
            When `relative` would leave this location, or is not a relative name at all.
        """
        parts = relative_parts(relative, self)
        if not parts:
            return self
        if self.scheme in HTTP_SCHEMES:
            parts = [quote(part, safe="") for part in parts]
        base = self.path.rstrip("/")
        joined = "/".join([base, *parts]) if base or self.scheme not in STORE_SCHEMES else ""
        path = joined or "/".join(parts)
        return Location(self.scheme, self.root, path, self.query, self.userinfo, self.withheld)

    def child(self, name: str) -> Location:
        """The location of a file below this one; a colon in its name is no sign of a URL."""
        return self.join(name if name.startswith("/") else f"./{name}")

    def parent(self) -> Location:
        """The folder or prefix that holds this object.

        Raises
        ------
        InvalidInputError
            At the root of a file system, a server or a bucket.
        """
        path = self.path.rstrip("/")
        if not path:
            raise InvalidInputError("there is no folder above", where=self.label)
        above = path.rpartition("/")[0]
        return replace(self, path=above if self.scheme in STORE_SCHEMES else above or "/")

    @property
    def name(self) -> str:
        """The last part of the path, decoded."""
        last = self.path.rstrip("/").rpartition("/")[2]
        return unquote(last) if self.scheme in HTTP_SCHEMES else last


@dataclass(frozen=True, slots=True, init=False)
class StorePath(os.PathLike[str]):
    """A key in a store, in the place of the path of a target: it has the same names.

    It is made of a URL or a `Location`, and `os.fspath` gives its URL. What only a file of this
    machine has, such as `exists`, is missing. Raises `InvalidInputError` for other places.
    """

    location: Location
    config: Any = field(repr=False, compare=False)
    """The `StorageConfig` to write with, and to read with what was written; None for the default
    one."""

    def __init__(self, place: str | Location, config: Any = None) -> None:
        location = place if isinstance(place, Location) else parse_href(place)
        if location.scheme not in STORE_SCHEMES:
            raise InvalidInputError(
                "not a place in a store",
                where=location.label,
                expected=", ".join(f"{scheme}://" for scheme in STORE_SCHEMES),
            )
        object.__setattr__(self, "location", location)
        object.__setattr__(self, "config", config)

    def __fspath__(self) -> str:
        return self.location.href

    __str__ = __fspath__

    def __truediv__(self, name: str) -> StorePath:
        return StorePath(self.location.child(name), self.config)

    @property
    def name(self) -> str:
        """The last part of the key; empty for a bucket."""
        return self.location.name

    @property
    def stem(self) -> str:
        """The name without its suffix."""
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        """The last suffix of the name, with its dot."""
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> StorePath:
        """The prefix or bucket that holds the key."""
        return StorePath(self.location.parent(), self.config)

    def with_name(self, name: str) -> StorePath:
        """The key of another name beside this one."""
        return self.parent / name


def stored(target: Any) -> StorePath | None:
    """The target if it is a key in a store, else None."""
    return target if isinstance(target, StorePath) else None


def _located(scheme: str, root: str, path: str, secrets: Sealed) -> Location:
    query, userinfo = secrets.value or ("", "")
    return Location(scheme, root, path, query, userinfo, secrets.value is None)


def relative_parts(relative: str, where: object) -> list[str]:
    """The parts of a relative href; `UnsafeContentError` if it is not safe.

    Empty parts and ``.`` are dropped.
    """
    if "\x00" in relative or "\\" in relative:
        raise _unsafe("a relative href holds NUL or a backslash", relative, where)
    if relative.startswith("/") or _SCHEME.match(relative):
        raise _unsafe("an href is absolute where it must be relative", relative, where)
    parts = [part for part in relative.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _unsafe("a relative href leaves its folder", relative, where)
    return parts


def _unsafe(what: str, relative: str, where: object) -> UnsafeContentError:
    return UnsafeContentError(what, where=str(where), found=shown(relative))


def href_text(href: str | os.PathLike[str]) -> str:
    """A path or URL of the caller as text; it is not parsed.

    Raises
    ------
    InvalidInputError
        It is something else, such as bytes or a list; or it is empty or holds NUL.
    """
    if not isinstance(href, str | os.PathLike):
        raise _no_href(type(href).__name__)
    text = os.fsdecode(href)
    if not text or "\x00" in text:
        raise _no_href(shown(text))
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:  # half of a surrogate pair, which no name can hold
        raise _no_href(shown(text)) from error
    return text


def _no_href(found: str) -> InvalidInputError:
    return InvalidInputError("not a path or URL", found=found, expected="text or a pathlib.Path")


def local_path(
    path: str | os.PathLike[str], what: str = "the path", hint: str | None = None
) -> Path:
    """A local path as the caller wrote it.

    Parameters
    ----------
    path
        A path, or a ``file://`` URL.
    what, hint
        What the path is of, and what to do if it is not local, for the error message.

    Raises
    ------
    InvalidInputError
        It is a URL of something else, or not a path.
    """
    location = parse_href(path)
    if location.scheme != FILE:
        raise InvalidInputError(f"{what} must be a local path", where=location.label, hint=hint)
    return Path(location.path if "://" in os.fspath(path) else path)


def parse_href(href: str | os.PathLike[str]) -> Location:
    """Parse a path or URL of the caller.

    Parameters
    ----------
    href
        A local path, or a URL with one of the schemes ``file``, ``http``, ``https``, ``s3``,
        ``gs``, ``az`` (also ``abfs``), ``hf`` and ``memory``. Local paths are made absolute, and
        ``hf://datasets/owner/name@revision/path`` is the HTTPS URL of that file.

    Raises
    ------
    InvalidInputError
        For an unknown scheme or an URL that lacks its host or bucket.
    """
    if isinstance(href, StorePath):
        return href.location
    text = href_text(href)
    scheme, separator, rest = text.partition("://")
    if isinstance(href, os.PathLike) or not separator or not _SCHEME.fullmatch(scheme + ":"):
        return Location(FILE, "", _absolute(_no_url(text)))
    scheme = scheme.lower()
    scheme = _ALIASES.get(scheme, scheme)
    if scheme == FILE:
        return _file_url(text, rest)
    if scheme in HTTP_SCHEMES:
        return _http_url(scheme, text)
    if scheme in STORE_SCHEMES:
        return _store_url(scheme, rest, text)
    if scheme == _HUB:
        return parse_href(_hub_url(rest))
    raise InvalidInputError(
        "unknown scheme",
        where=_broken(text),
        found=scheme,
        expected="a path, file://, http(s)://, s3://, gs://, az://, hf:// or memory://",
    )


def _no_url(path: str) -> str:
    """Return a path; refuse one that holds a URL with a secret, which system errors would show."""
    # Secrets stand before an '@' or behind a '?'; few paths have either.
    if ("@" in path or "?" in path) and without_secrets(path) != path:
        raise InvalidInputError(
            "a URL where a path is expected",
            where=shown(path),
            hint="pass the URL itself as text; pathlib and GDAL names change its meaning",
        )
    return path


def _absolute(path: str) -> str:
    # Removing '..' from the text would differ from the system if a link precedes it.
    if ".." in path.split("/"):
        return os.path.realpath(path)
    return os.path.abspath(path)  # noqa: PTH100 - hrefs are strings throughout


def _file_url(text: str, rest: str) -> Location:
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not slash:
        raise InvalidInputError("not a local file URL", where=shown(text), expected="file:///path")
    decoded = unquote(path, errors="surrogateescape")
    if "\x00" in decoded:
        raise InvalidInputError("not a path or URL", where="href", found=shown(text))
    return Location(FILE, "", _absolute("/" + decoded))


def _http_url(scheme: str, text: str) -> Location:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:  # whose text repeats user and password
        host = None
    if not host or any(ord(char) <= 0x20 or ord(char) == 0x7F for char in host):
        raise InvalidInputError(
            "not a URL",
            where=_broken(text),
            expected="https://host[:port]/path, with all other characters percent-encoded",
        )
    root = f"[{host}]" if ":" in host else host
    if port is not None and port != _DEFAULT_PORTS[scheme]:
        root = f"{root}:{port}"
    path = quote(parts.path or "/", safe=_HTTP_SAFE)
    query = quote(parts.query, safe=_HTTP_SAFE + "?")
    userinfo = parts.netloc.rpartition("@")[0]
    if query or userinfo:
        told()
    return Location(scheme, root, path, query, userinfo)


def _broken(text: str) -> str:
    """A URL that cannot be parsed, without a possible user and password."""
    scheme, _, rest = text.partition("://")
    return shown(f"{scheme}://{rest.rpartition('@')[2]}")


def _store_url(scheme: str, rest: str, text: str) -> Location:
    root, _, key = rest.partition("/")
    if not root or ("@" in root and scheme != "az"):
        raise InvalidInputError(
            "the URL has no bucket", where=_broken(text), expected=f"{scheme}://bucket/key"
        )
    return Location(scheme, root, key.strip("/"))


# -- credentials and pickles -----------------------------------------------------------------------
# A pickle that could be stored or sent elsewhere holds no credentials. `multiprocessing` sends them
# to its own processes through a pipe. Any other pickle holds a number, by which this process and
# its forks find them.


PICKLE_SECRETS = "COMAL_PICKLE_SECRETS"
"""Set to 1, every pickle carries credentials, such as pickles for cluster workers."""

_MOST_KNOWN = 16_384
_known: dict[str, Any] = {}
_numbers: dict[str, str] = {}


class Sealed:
    """A secret that is not shown, and is left out if its pickle leaves this process.

    None is a secret that was left out of a pickle before.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value
        told()

    def __repr__(self) -> str:
        return "Sealed(...)"

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            _carried(self) if os.environ.get(PICKLE_SECRETS) == "1" else (_found, (_number(self),))
        )


def told() -> None:
    """Register how `multiprocessing` pickles secrets, before it pickles the first one."""
    # Not needed without secrets.
    from multiprocessing.reduction import ForkingPickler  # noqa: PLC0415

    ForkingPickler.register(Sealed, _carried)


def no_secrets(where: str) -> AccessDeniedError:
    """The error for network access after unpickling without secrets."""
    return AccessDeniedError(
        "the credentials were left out of the pickle that this came from",
        where=where,
        hint=f"open it in this process, or set {PICKLE_SECRETS}=1 where it is pickled",
    )


def _carried(value: Sealed) -> tuple[Any, ...]:
    return Sealed, (value.value,)


def _number(value: Sealed) -> str:
    # One random number for equal secrets.
    if value.value is None:
        return ""
    number = _numbers.setdefault(repr(value.value), os.urandom(8).hex())
    _known[number] = value.value
    if len(_known) > _MOST_KNOWN:
        _numbers.pop(repr(_known.pop(next(iter(_known)))), None)
    return number


def _found(number: str) -> Sealed:
    return Sealed(_known.get(number))
