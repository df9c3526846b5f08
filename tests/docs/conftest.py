"""What the examples of the documents start from: a folder with the output of ``comal demo``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from comal.demo import Result


@pytest.fixture
def workplace(whole_demo: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder with a copy of it."""
    shutil.copytree(whole_demo.folder, tmp_path / "comal-demo")
    monkeypatch.chdir(tmp_path)
    return tmp_path
