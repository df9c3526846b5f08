"""A folder or prefix of each kind that something can be written to."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import obstore
import pytest  # noqa: TC002 - its names stand in signatures, as everywhere in tests

from comal.storage import StorageConfig, targets
from comal.storage.cloud import memory_store
from comal.storage.location import StorePath, parse_href
from comal.storage.replacing import changing_file
from comal.storage.targets import magic_kind
from tests.servers import azure, s3
from tests.servers.s3 import S3Server
from tests.support import files_below, objects

MINE = magic_kind("a file of mine", b"mine")
KINDS = ("local", "memory", "s3", "gs", *(("az",) if azure.found() else ()))


@dataclass(frozen=True)
class Box:
    """A folder or prefix to write to.

    Attributes
    ----------
    target
        The target of a name.
    files
        All files or objects in it, with hidden ones.
    put
        Somebody else's writing.
    """

    kind: str
    target: Callable[[str], Any]
    files: Callable[[], dict[str, bytes]]
    put: Callable[[str, bytes], object]
    scratch: Path

    def write(self, name: str, data: bytes, *, overwrite: bool = False) -> None:
        with targets.new_file(self.target(name), overwrite, MINE) as file:
            file.write(data)
        assert list(self.scratch.iterdir()) == []

    def change(self, name: str, data: bytes) -> None:
        target = self.target(name)
        with changing_file(target) as change, change.edit(target) as version:
            file = version.file()
            file.truncate(0)
            file.seek(0)
            file.write(data)


def store_box(kind: str, store: Any, href: str, config: StorageConfig, scratch: Path) -> Box:
    """A prefix of a store, or of a server, which is looked at without requests."""
    scratch.mkdir()
    config = replace(config, scratch=str(scratch))
    prefix = parse_href(href).path + "/"

    def put(name: str, data: bytes) -> None:
        key = prefix + name
        store.put(key, data) if isinstance(store, S3Server) else obstore.put(store, key, data)

    def files() -> dict[str, bytes]:
        return store.objects(prefix) if isinstance(store, S3Server) else objects(store, prefix)

    return Box(kind, lambda name: StorePath(f"{href}/{name}", config), files, put, scratch)


def box_of(kind: str, request: pytest.FixtureRequest, top: Path, hasty: StorageConfig) -> Box:
    name, scratch = uuid.uuid4().hex, top / "scratch"
    if kind == "memory":
        return store_box("memory", memory_store(name), f"memory://{name}/in", hasty, scratch)
    if kind == "s3":
        return s3_box(request.getfixturevalue("s3_server"), hasty, scratch)
    if kind == "gs":
        google = request.getfixturevalue("google_server")
        provider = google.config.credential_provider
        config = replace(hasty, gcs=google.config.gcs, credential_provider=provider)
        return store_box("gs", google, f"gs://{s3.GOOGLE_BUCKET}/{name}", config, scratch)
    if kind == "az":
        server = request.getfixturevalue("azure_server")
        config = replace(hasty, azure=server.options, total_timeout=10.0)
        href = f"az://{azure.CONTAINER}/{name}"
        return store_box("az", server.store, href, config, scratch)
    folder = top / "in"
    folder.mkdir()
    scratch.mkdir()

    def put(name: str, data: bytes) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)

    def files() -> dict[str, bytes]:
        return {name: (folder / name).read_bytes() for name in files_below(folder)}

    return Box("local", lambda name: folder / name, files, put, scratch)


def s3_box(server: S3Server, hasty: StorageConfig, scratch: Path) -> Box:
    # moto answers late where a machine is busy.
    config = replace(hasty, s3=server.config.s3, total_timeout=10.0)
    return store_box("s3", server, server.url_for(uuid.uuid4().hex), config, scratch)
