"""Code in documents, found and run."""

from __future__ import annotations

import re
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document: Path, language: str) -> list[str]:
    """The code blocks of a language, in their order."""
    return [code for name, code in _BLOCK.findall(document.read_text()) if name == language]


def run_python(document: Path) -> None:
    """Run the Python blocks one after another in one namespace, in the current folder."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for number, code in enumerate(blocks(document, "python"), start=1):
        exec(compile(code, f"{document.name}, example {number}", "exec"), namespace)
