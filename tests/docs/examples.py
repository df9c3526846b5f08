"""Code in documents, found and run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document: Path, language: str) -> list[str]:
    """The code blocks of a language, in their order."""
    return [code for name, code in _BLOCK.findall(document.read_text()) if name == language]


def run_python(document: Path, replaced: Mapping[str, str] | None = None) -> None:
    """Run the Python blocks one after another in one namespace, in the current folder.

    Texts of `replaced` stand for something that only the test has, such as a server.
    """
    namespace: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(blocks(document, "python"), start=1):
        code = block
        for shown, real in (replaced or {}).items():
            code = code.replace(shown, real)
        exec(compile(code, f"{document.name}, example {number}", "exec"), namespace)
