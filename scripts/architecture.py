"""Write the list of modules in ARCHITECTURE.md: each with the first line of its docstring.

.venv/bin/python scripts/architecture.py           rewrite the list
.venv/bin/python scripts/architecture.py --check   exit 1 when it is not up to date
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
DOCUMENT = REPOSITORY / "ARCHITECTURE.md"
SOURCES = REPOSITORY / "src"
BEGIN = "<!-- modules: written by scripts/architecture.py -->\n"

# Rooms from the top of the house down.
ROOMS = (
    "comal.cli",
    "comal.demo",
    "comal.server",
    "comal.formats",
    "comal.convert",
    "comal.taco",
    "comal.tortilla",
    "comal.raquet",
    "comal.tapalcatl",
    "comal.query",
    "comal.raster",
    "comal.frames",
    "comal.site",
    "comal.intake",
    "comal.ziparchive",
    "comal.table",
    "comal.grid",
    "comal.geo",
    "comal.storage",
    "comal",
)


def main() -> None:
    """Rewrite the list, or compare it."""
    text = DOCUMENT.read_text(encoding="utf-8")
    intro = text.partition(BEGIN)[0]
    wanted = intro + BEGIN + "\n" + "\n".join(listing())
    if "--check" not in sys.argv:
        DOCUMENT.write_text(wanted, encoding="utf-8")
    elif text != wanted:
        sys.exit("ARCHITECTURE.md is behind: run scripts/architecture.py")


def listing() -> Iterator[str]:
    """The lines of the list."""
    modules = {_dotted(path): path for path in sorted((SOURCES / "comal").rglob("*.py"))}
    for room in ROOMS:
        inside = sorted(name for name in modules if _room(name) == room)
        yield f"### {room}\n"
        for name in inside:
            yield f"- `{name}`: {_first_line(modules[name])}"
        yield ""


def _dotted(path: Path) -> str:
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _room(name: str) -> str:
    candidates = (room for room in ROOMS if f"{name}.".startswith(f"{room}."))
    return max(candidates, key=len)


def _first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    line = docstring.partition("\n\n")[0].replace("\n", " ").strip()
    if not line:
        sys.exit(f"{path.relative_to(REPOSITORY)} has no docstring")
    return line


if __name__ == "__main__":
    main()
