"""Unpack the built wheel, and see that it is complete and runs from there."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src"


def main() -> None:
    """Check the one wheel in the folder named on the command line."""
    (wheel,) = Path(sys.argv[1]).glob("comal-*.whl")
    with tempfile.TemporaryDirectory() as unpacked:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked)
            packed = {name for name in archive.namelist() if name.startswith("comal/")}
        missing = sorted(_source_files() - packed)
        if missing:
            sys.exit(f"the wheel lacks {', '.join(missing)}")
        # The folder stands before the editable installation on the path.
        environment = {**os.environ, "PYTHONPATH": unpacked}
        command = (
            "import comal.cli, sys; sys.argv[0] = 'comal'; print(comal.__file__); comal.cli.main()"
        )
        done = subprocess.run(
            [sys.executable, "-c", command, "--help"],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
    if not done.stdout.startswith(unpacked) or "Usage: comal" not in done.stdout:
        sys.exit(f"the wheel does not run:\n{done.stdout}")
    print(f"{wheel.name}: {len(packed)} files, runs")


def _source_files() -> set[str]:
    return {
        path.relative_to(SOURCES).as_posix()
        for path in (SOURCES / "comal").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


if __name__ == "__main__":
    main()
