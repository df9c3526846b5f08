"""A folder in a store that grows while it is made, and whose killed writer can be followed.

Its files become objects a few at a time, and leave this machine. Objects with hidden names beside
the folder tell of it: a note says which work this is, and a record, put before each few files,
which names and checksums they have. So whoever does the same work after a kill finds what is
finished, and `clean` what is to be removed.

Nothing in a store locks. The note is replaced under the condition that it is the one that was seen
before, and who did so last owns the folder. Before it publishes the last file, or removes anything,
a writer replaces the note once more: whoever lost it leaves everything as it is.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import obstore

from comal.errors import (
    ComalError,
    ConflictError,
    InvalidMetadataError,
    ObjectNotFoundError,
    shown_path,
    system_errors,
    translated,
)
from comal.limits import MIB
from comal.parallel import completed, results, run_all
from comal.storage import storeobject, upload
from comal.storage.location import StorePath
from comal.storage.storeobject import StoreObject
from comal.storage.targetlock import BUILD, hidden, is_hidden
from comal.storage.targets import NOTHING, refuse_sources

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

_NOTE = "build.json"
_FILES, _BYTES = 64, 64 * MIB
"""Files, and bytes of them, that are published together."""
_Removable = tuple[StoreObject, str | None]
"""An object, and its ETag if that is not known to it."""
_DAMAGED: Mapping[type[BaseException], type[ComalError]] = dict.fromkeys(
    (ValueError, KeyError, TypeError), InvalidMetadataError
)


class Kept(NamedTuple):
    """A file that an interrupted writer has published."""

    size: int
    told: Any
    """What that writer told of it and of its neighbours."""
    tag: str


class GrowingFolder:
    """A folder in a store, for the writer that makes it; see `growing_folder`."""

    def __init__(self, place: StorePath, scratch: Path, mark: str = "", last: str = "") -> None:
        self.folder = scratch / place.name
        """Where files are made."""
        self.kept: dict[str, Kept] = {}
        """Files that are published already, by their names in the folder."""
        self._place, self._scratch, self._mark, self._last = place, scratch, mark, last
        self._home = cast("StorePath", hidden(cast("Path", place), BUILD))
        self._note = StoreObject(self._home / _NOTE)
        self._seen: ObjectMeta | None = None
        self._owner = ""
        self.lacks_last = False
        """Whether a writer before had published all but the last file."""
        self._waiting: list[tuple[Any, Sequence[str]]] = []
        self._size = 0
        self._made: list[StoreObject] = []
        self._records: list[StoreObject] = []

    # -- publishing ----------------------------------------------------------------------------

    def add(self, names: Sequence[str], size: int, told: Any) -> None:
        """Take finished files of `size` bytes in all; they will be published, and leave the disk.

        What is `told` of them is kept for who goes on, as JSON.
        """
        self._waiting.append((told, names))
        self._size += size
        if self._size >= _BYTES or sum(len(some) for _, some in self._waiting) >= _FILES:
            self._publish()

    def _publish(self) -> None:
        waiting, self._waiting, self._size = self._waiting, [], 0
        names = [name for _, some in waiting for name in some]
        if not names:
            return
        note, _ = self._read()
        if note is None or note["owner"] != self._owner:
            raise self._busy()
        facts = iter(list(results(None, self._facts, names)))
        rows = [[told, [next(facts) for _ in some]] for told, some in waiting]
        self._records.append(StoreObject(self._home / f"{secrets.token_hex(8)}.json"))
        self._records[-1].put(json.dumps(rows).encode())
        run_all(self._publish_one, names)

    def _facts(self, name: str) -> list[Any]:
        path = self.folder / name
        digests = [storeobject.digest_of(path, kind).hex() for kind in ("md5", "sha256")]
        return [name, path.stat().st_size, *digests]

    def _publish_one(self, name: str) -> None:
        # An equal one may be there: that of a killed writer, which no checksum of the store proves.
        file, made = StoreObject(self._place / name, going_on=True), list[StoreObject]()
        path = self.folder / name
        try:
            with system_errors("cannot read what was written", path):
                file.publish(path, None, made)
                path.unlink()
            made = [file]
        finally:
            self._made += made

    def finish(self) -> None:
        """Publish what is left and the last file, if there is one; then forget how it was made."""
        self._publish()
        self._own(finished=True)
        if self._last:
            self._publish_one(self._last)
        self._forget()

    def _forget(self) -> None:
        with suppress(ComalError):  # the folder is whole; `clean` removes the rest
            for one in [*self._records, self._note]:
                one.remove()

    # -- going on, and giving up ---------------------------------------------------------------

    def begin(self) -> None:
        """Become the owner of the folder, which is new or was begun by the same work.

        Raises `ConflictError` if it exists, or was begun by other work.
        """
        note, self._seen = self._read()
        if note is None:
            StoreObject(self._place).look(NOTHING, folder=True, overwrite=False)
            self._own(finished=False)
            return
        if note["mark"] != self._mark:
            raise self._busy("another writer has begun the target, and has not finished")
        self.lacks_last = note["finished"]
        self._own(finished=self.lacks_last)
        others = self._find()
        is_whole = self.lacks_last and self._is_whole(others)
        if is_whole:
            self._forget()
        if is_whole or others:
            where, hint = shown_path(self._place), "choose another name, or move away what is there"
            raise ConflictError("the target exists", where=where, hint=hint)

    def _busy(self, what: str = "another writer is at work on the target") -> ConflictError:
        where = shown_path(self._place)
        hint = f"repeat what it did, or run 'comal clean {where}' when it has rested for an hour"
        return ConflictError(what, where=where, hint=hint)

    def _read(self) -> tuple[dict[str, Any] | None, ObjectMeta | None]:
        """The note and its version, if there is one."""

        def get(store: ObjectStore) -> tuple[bytes, ObjectMeta]:
            found = obstore.get(store, self._note.key)
            return bytes(found.bytes()), found.meta

        try:
            data, version = self._note.ask(get)
        except ObjectNotFoundError:
            return None, None
        with translated(_DAMAGED, "the note of a writer is damaged", where=shown_path(self._home)):
            note = json.loads(data)
            return {name: note[name] for name in ("mark", "last", "finished", "owner")}, version

    def _own(self, *, finished: bool) -> None:
        """Replace the note; `ConflictError` if it is not the one that was seen."""
        self._owner, made = secrets.token_hex(8), list[StoreObject]()
        note = {"mark": self._mark, "last": self._last, "finished": finished, "owner": self._owner}
        path = self._scratch / self._owner  # a new file: a store in memory may still map the last
        with system_errors("cannot write", path):
            path.write_text(json.dumps(note))
        try:
            self._note.publish(path, self._seen, made)
            now, version = self._read()
        except ConflictError as error:
            raise self._busy() from error
        except BaseException:  # also on Ctrl-C: a note that nobody knows of may not stay
            for one in made:
                with suppress(ComalError):  # the error under way says more
                    one.remove()
            raise
        if now != note:
            raise self._busy()
        self._seen = version

    def _find(self) -> set[str]:
        """Find what is published of the recorded files; returns the names of all others."""
        names = [name for name in StoreObject(self._home).below(lambda _: None) if name != _NOTE]
        self._records += [StoreObject(self._home / name) for name in names]
        found = StoreObject(self._place).below(lambda meta: (meta["size"], meta["e_tag"]))
        others = {name for name in found if not is_hidden(name.rpartition("/")[2])}

        def proven(row: tuple[Any, list[Any]]) -> tuple[str, Kept] | None:
            told, (name, size, md5, sha256) = row
            tag = storeobject.plain_tag(found[name][1])
            same = found[name][0] == size and (
                storeobject.proves(tag, bytes.fromhex(md5))
                or StoreObject(self._place / name).checksum() == sha256
            )
            return (name, Kept(size, told, tag)) if same else None

        with translated(_DAMAGED, "a record of a writer is damaged", where=shown_path(self._home)):
            records = map(json.loads, completed(_content, self._records))
            rows = [(told, file) for some in records for told, files in some for file in files]
            there = [row for row in rows if row[1][0] in found]
            self.kept.update(filter(None, completed(proven, there)))
        return others - {file[0] for _, file in rows}

    def _is_whole(self, others: Collection[str]) -> bool:
        """Whether the folder is whole, when all but the last file are published."""
        return not self._last or self._last in others

    def give_up(self) -> None:
        """Remove all that is published, if it is still this writer's."""

        def remove(one: _Removable) -> bool:
            with suppress(ComalError):
                return _removed(one)
            return False

        with suppress(ComalError):  # it fails already
            note, version = self._read()
            if note and note["owner"] == self._owner:  # also when its answer was lost
                self._seen = version
            self._mark = ""  # so that nobody goes on with what is being removed
            self._own(finished=False)
            self._remove(remove)

    def _remove(self, remove: Callable[[_Removable], bool]) -> list[StorePath]:
        """Remove the files, the newest first, then what told of them; returns the latter."""
        files: list[_Removable] = [(made, None) for made in reversed(self._made)]
        files += [(StoreObject(self._place / name), one.tag) for name, one in self.kept.items()]
        note = [self._note] if self._seen else []
        records: list[_Removable] = [(record, None) for record in self._records]
        for some in (files[:1], files[1:], records, [(one, None) for one in note]):
            if not all(list(completed(remove, some))):
                return []  # what told of it says what is left
        return [one.place for one in [*self._records, *note]]

    def clean(self) -> list[StorePath]:
        """Remove what a killed writer left, if it has rested; returns which hidden objects.

        The files of a folder that is whole stay.
        """
        left = StoreObject(self._home).below(upload.has_rested).values()
        if not left or not all(left):
            return []
        note, self._seen = self._read()
        others = self._find()
        if note is not None:
            self._last = note["last"]
            self._own(finished=note["finished"])
        # A record alone is that of a writer who had lost the folder to another.
        if note is None or (note["finished"] and self._is_whole(others)):
            self.kept.clear()
        return self._remove(_removed)


def _removed(one: _Removable) -> bool:
    one[0].remove(one[1])
    return True


def _content(record: StoreObject) -> bytes:
    return record.ask(lambda store: bytes(obstore.get(store, record.key).bytes()))


@contextmanager
def growing_folder(
    place: StorePath, work: bytes = b"", last: str = "", sources: Any = ()
) -> Iterator[GrowingFolder]:
    """Make a folder in a store whose files appear a few at a time, and the file `last` at the end.

    `work` tells one work from another: what a killed one has published is kept by the same. After
    an error, and on Ctrl-C, all is removed. Sources and errors are those of
    `comal.storage.targets.new_folder`; nothing is replaced.
    """
    refuse_sources(cast("Path", place), sources)
    with upload.scratch_folder(place.config) as scratch:
        mark = hashlib.sha256(work).hexdigest() if work else secrets.token_hex(16)
        made = GrowingFolder(place, scratch, mark, last)
        made.folder.mkdir()
        made.begin()
        try:
            yield made
            made.finish()
        except BaseException:  # also on Ctrl-C: nothing half done may stay
            # Whoever published all but the last file may still be about to publish that.
            if not made.lacks_last:
                made.give_up()
            raise


def clean_growing(place: StorePath) -> list[StorePath]:
    """Remove what a killed writer left of a growing folder; returns the hidden objects gone."""
    with upload.scratch_folder(place.config) as scratch:
        return GrowingFolder(place, scratch).clean()
