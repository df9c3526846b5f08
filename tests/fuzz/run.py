"""Run one target under atheris; see ``scripts/fuzz``.

    python -m tests.fuzz.run TARGET SEEDS [options of libFuzzer] [folder of the corpus, or files]

Writes the seeds to the folder SEEDS first. Everything of comal that a sound input imports is
instrumented, so that the fuzzer sees which lines a mutant reaches.
"""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path

import atheris  # type: ignore[import-untyped]  # in an environment of its own

_MEMORY = 4 << 30
"""Bytes of address space beyond what the libraries have taken: no input may ask for as much."""


def main() -> None:
    """Instrument, warm up, and give the process to libFuzzer."""
    name, seeds, *options = sys.argv[1:]
    with atheris.instrument_imports(include=["comal"]):
        from tests.fuzz.base import attempt  # instrumented from here on
        from tests.fuzz.targets import TARGETS

        target = TARGETS[name]
        folder = Path(seeds)
        folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(target.seeds()):
            (folder / f"{number:02}").write_bytes(data)
            with suppress(AssertionError):  # the first run imports, which takes time and memory
                attempt(target, data)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))

    def test_one_input(data: bytes) -> None:
        attempt(target, data)

    once = any(Path(option).is_file() for option in options)  # inputs to run again, and no more
    atheris.Setup([sys.argv[0], *options, *([] if once else [seeds])], test_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
