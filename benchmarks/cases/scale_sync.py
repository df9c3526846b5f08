"""Publishing to S3: many small files against a loop of puts, and one large file against others.

The server is moto in a process of its own. For small files it waits before each answer, as a store
does; a loop on a machine that answers at once would measure the server.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import obstore
from obstore.store import S3Store

from comal.storage import StorageConfig
from comal.storage.syncing import sync  # here, as all load their libraries before they begin
from harness import main_of_case

if sys.argv[-1] == "boto3":
    import boto3

WAIT = 0.03
SMALL = 2_000
KEYS = {"access_key_id": "testing", "secret_access_key": "testing", "region": "us-east-1"}


def serve(wait: str) -> None:
    """Run the server until its standard input ends."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    listening: Any = server._server  # noqa: SLF001 - it has no public name
    answer = listening.app

    def late(environ: Any, start: Any) -> Any:
        time.sleep(float(wait))
        return answer(environ, start)

    listening.app = late
    print(server.get_host_and_port()[1], flush=True)
    sys.stdin.read()


@contextmanager
def bucket(wait: float) -> Iterator[dict[str, str]]:
    """The options of a store whose bucket ``bench`` is empty."""
    import urllib3

    command = [sys.executable, __file__, "serve", str(wait)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, **pipes)
    assert process.stdout is not None
    assert process.stdin is not None
    endpoint = f"http://127.0.0.1:{int(process.stdout.readline())}"
    assert urllib3.request("PUT", f"{endpoint}/bench").status == 200
    yield {"endpoint": endpoint, **KEYS}
    process.stdin.close()  # not awaited, as its memory would count as ours


def store_of(options: dict[str, str]) -> Any:
    named: Any = {"config": options, "client_options": {"allow_http": True}}
    return S3Store("bench", **named)


def found(options: dict[str, str]) -> list[int]:
    """Number and bytes of the objects that are there."""
    sizes = [meta["size"] for chunk in obstore.list(store_of(options)) for meta in chunk]
    return [len(sizes), sum(sizes)]


def by_comal(source: Path, options: dict[str, str]) -> None:
    sync(source, f"s3://bench/{source.name}", config=StorageConfig(s3=options))


def by_obstore(source: Path, options: dict[str, str]) -> None:
    store = store_of(options)
    for path in sorted(source.rglob("*.bin")) if source.is_dir() else [source]:
        obstore.put(store, path.relative_to(source.parent).as_posix(), path)


def by_boto3(source: Path, options: dict[str, str]) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=options["endpoint"],
        region_name=options["region"],
        aws_access_key_id=options["access_key_id"],
        aws_secret_access_key=options["secret_access_key"],
    )
    client.upload_file(str(source), "bench", source.name)


BY: dict[str, Callable[[Path, dict[str, str]], None]] = {
    "comal": by_comal,
    "obstore": by_obstore,
    "boto3": by_boto3,
}


def sync_small(work: str, count: str, who: str) -> dict[str, Any]:
    """So many files of 2 kB to an empty bucket."""
    return measured(_files(Path(work), int(count)), WAIT, who)


def sync_again(work: str, count: str, who: str) -> dict[str, Any]:
    """The same when all are there."""
    return measured(_files(Path(work), int(count)), WAIT, who, again=True)


def upload(work: str, megabytes: str, who: str) -> dict[str, Any]:
    """One file of so many megabytes."""
    path = Path(work) / "large.bin"
    if not path.exists():
        block = os.urandom(1_000_000)
        with path.open("wb") as file:
            for _ in range(int(megabytes)):
                file.write(block)
    return measured(path, 0.0, who)


def measured(source: Path, wait: float, who: str, *, again: bool = False) -> dict[str, Any]:
    with bucket(wait) as options:
        for _ in range(1 + again):
            start = time.perf_counter()
            BY[who](source, options)
            seconds = time.perf_counter() - start
        check = found(options)
    return {
        "seconds": seconds,
        "check": check,
        "note": {"MB/s": round(check[1] / seconds / 1e6, 1)},
    }


def _files(work: Path, count: int) -> Path:
    folder = work / "many"
    if not folder.exists():
        for number in range(count):
            path = folder / f"{number % 100}/{number}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(SMALL))
    return folder


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        main_of_case({case.__name__: case for case in (sync_small, sync_again, upload)})
