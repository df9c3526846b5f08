"""What several tests share."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pyarrow as pa
import pytest
import shapely
from click.testing import CliRunner, Result

from comal.cli import root
from comal.errors import ComalError

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"

needs_shared = pytest.mark.skipif(
    not (SHARED / "fixtures").is_dir(),
    reason="reference files of the existing writers are not beside the checkout",
)

_NOBODY = 65534


def command(*words: object, code: int = 0) -> Result:
    """What a command line printed in this process, and that its exit code was the one expected."""
    result = CliRunner().invoke(root, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


def wkb_of(geometries: Any) -> pa.Array:
    """Shapely geometries as a column of WKB; None is null."""
    return pa.array(shapely.to_wkb(np.asarray(geometries, object)), pa.binary())


def files_below(folder: Path) -> dict[str, bytes]:
    """All files below a folder by their paths in it."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def objects(store: Any, prefix: str) -> dict[str, bytes]:
    """All objects of a store below a prefix, by what follows it."""
    paths = [meta["path"] for chunk in obstore.list(store, prefix) for meta in chunk]
    return {p.removeprefix(prefix): bytes(obstore.get(store, p).bytes()) for p in paths}


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """The SHA-256 of each file."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def said_by(error: BaseException) -> Iterator[object]:
    """All that an error says, and those below it in its traceback."""
    # As it says itself: Dask, where it is loaded, has tracebacks pickled as well.
    pickled = pickle.dumps(error.__reduce_ex__(pickle.DEFAULT_PROTOCOL))
    yield from (str(error), repr(error), pickled, vars(error))
    yield from traceback.format_exception(error)
    if isinstance(error, ComalError):
        yield json.dumps(error.to_dict())


def open_below(path: Path) -> int:
    """How many descriptors of this process are open on a file, or on files below a folder.

    Those of other tests, which the collector may close at any time, are not counted.
    """
    names = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists the folder
            names.append(os.readlink(descriptor))  # noqa: PTH115 - as it is written there
    return sum(f"{name}/".startswith((f"{path}/", f"{path} (deleted)/")) for name in names)


def in_child(work: Callable[[], object]) -> None:
    """Run `work` in a forked child; its failure is ours."""
    with warnings.catch_warnings():
        # Python from 3.12 on warns of any fork with threads, which is what is tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        signal.alarm(120)  # a child that waits for a lock of nobody's ends
        try:
            work()
        except BaseException:  # noqa: BLE001 - the child must not go on with the parent's tests
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


@contextmanager
def public_folder() -> Iterator[Path]:
    """A folder that every user of the machine reaches; the one of pytest is its owner's only."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may read everything: be somebody else meanwhile.

    What is needed must have been imported before, as the checkout may be out of reach as well.
    """
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
