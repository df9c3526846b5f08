"""Readers of others, which must take every archive that a fault has left."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import warnings
import zipfile
from collections.abc import Iterable
from pathlib import Path

import rasterio
from rasterio.errors import NotGeoreferencedWarning


def by_zipfile(path: Path) -> None:
    """Every entry, by CPython's zipfile."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None, path


def by_unzip(path: Path) -> None:
    """Every entry, by Info-ZIP, where it is installed; it leaves with 1 where nothing is inside."""
    if shutil.which("unzip") is not None:
        done = subprocess.run(["unzip", "-tqq", path], capture_output=True, text=True, check=False)
        empty = done.returncode == 1 and "zipfile is empty" in done.stderr
        assert done.returncode == 0 or empty, f"{path}: {done.stdout}{done.stderr}"


def by_gdal(path: Path) -> None:
    """The first picture, by GDAL."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".png")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        for name in names[:1]:
            with rasterio.open(f"/vsizip/{path}/{name}") as picture:
                assert picture.read().size, path


ARCHIVES = (by_zipfile, by_unzip, by_gdal)


class Foreign:
    """Readers of ZIP archives that look at each content once."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def read(self, paths: Iterable[Path], what: str) -> None:
        """Fail where one of them refuses a file."""
        for path in paths:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if digest not in self._seen:
                try:
                    for reader in ARCHIVES:
                        reader(path)
                except Exception as error:
                    raise AssertionError(f"{path}: {what}") from error
                self._seen.add(digest)
