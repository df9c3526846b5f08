"""What the documents and the source of the package hold, read once for all tests."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.support import REPOSITORY

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SOURCES = REPOSITORY / "src"
GONE = "X"
"""What stands in a hint for a value that is filled in."""


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


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the package."""

    name: str
    """With dots."""
    text: str
    said: str | None
    """Its docstring."""
    imports: frozenset[str]
    """Every module that it imports, wherever in it the import stands."""
    at_once: frozenset[str]
    """Modules and, after their modules, names that it imports when it is imported itself."""
    exports: Mapping[str, str]
    """Names that a package imports when they are first used, as `at_once` has them."""
    hints: tuple[tuple[str, str], ...]
    """Place and text of each hint of an error."""
    extras: frozenset[str]
    """What errors say must be installed."""


@cache
def modules() -> tuple[Module, ...]:
    # The collector would look at the growing trees again and again, which takes longer than parsing
    # does; nothing in them is a circle.
    gc.disable()
    try:
        return tuple(map(_module, sorted((_SOURCES / "comal").rglob("*.py"))))
    finally:
        gc.enable()


def _module(path: Path) -> Module:
    text = path.read_text()
    tree = ast.parse(text)
    later = [node for node in tree.body if _is_for_checkers(node)]
    imports, hints, extras = set(), [], set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports |= _imported(node)
        elif isinstance(node, ast.keyword) and node.arg == "hint":
            if hint := "".join(_pieces(node.value)):
                hints.append((f"{path.relative_to(REPOSITORY)}:{node.value.lineno}", hint))
        elif isinstance(node, ast.Call) and _makes_a_missing_extra(node.func):
            extras |= {str(one.value) for one in node.args[1:2] if isinstance(one, ast.Constant)}
    return Module(
        name=".".join(path.relative_to(_SOURCES).with_suffix("").parts).removesuffix(".__init__"),
        text=text,
        said=ast.get_docstring(tree),
        imports=frozenset(imports),
        at_once=frozenset(_at_once(tree.body)),
        exports={
            name.rpartition(".")[2]: name
            for block in later
            for node in ast.walk(block)
            if isinstance(node, ast.ImportFrom)
            for name in _imported(node) - {node.module}
        },
        hints=tuple(hints),
        extras=frozenset(extras),
    )


def _imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    assert node.module is not None, "imports are absolute"
    return {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}


def _is_for_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _at_once(body: list[Any]) -> Iterator[str]:
    """What is imported by statements outside of functions."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imported(node)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts = ("orelse",) if _is_for_checkers(node) else ("body", "handlers", "orelse")
            for part in parts:
                yield from _at_once(getattr(node, part, None) or [])


def _makes_a_missing_extra(function: ast.expr) -> bool:
    named = isinstance(function, ast.Attribute) and function.attr == "of"
    return named and "MissingExtraError" in ast.unparse(function)


def _pieces(node: ast.AST) -> Iterator[str]:
    """The texts of an expression, with a mark for each value between."""
    if isinstance(node, ast.Constant):
        yield node.value if isinstance(node.value, str) else ""
    elif isinstance(node, ast.JoinedStr):
        for part in node.values:
            yield "".join(_pieces(part)) if isinstance(part, ast.Constant) else GONE
    else:
        for child in ast.iter_child_nodes(node):
            yield from _pieces(child)
