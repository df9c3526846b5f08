"""Write the options of all commands into docs/cli.md; ``--check`` tells whether they are there.

What an option does is the help that the command line itself has, so that no page can differ.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from comal.cli import options, root

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
HEAD = "## Options\n\n<!-- options: written by scripts/cli_options.py -->\n"
END = "<!-- end of options -->\n"
COMMON = {name for make in options.COMMON for name in make().opts}


def commands(group: Any) -> Iterator[tuple[str, Any]]:
    """The commands of a group by their names, without those of groups in it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        yield name, group.get_command(context, name)


def rows(group: Any) -> Iterator[str]:
    """A row for each option of a group's commands; the same option of several is one row."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, command in commands(group):
        if isinstance(command, click.Group):
            continue
        for option in command.params:
            if isinstance(option, click.Option) and not COMMON & set(option.opts):
                names = ", ".join(f"`{one}`" for one in [*option.opts, *option.secondary_opts])
                default = f"; default {option.default}" if option.show_default else ""
                text = " ".join((option.help or "").split()).removesuffix(".") + default
                found.setdefault((names, text.replace("|", "\\|")), []).append(name)
    for (names, text), of in sorted(found.items()):
        yield f"| {names} | {', '.join(of)} | {text} |"


def section() -> str:
    """The section as it shall be."""
    groups: list[tuple[str, click.Group]] = [("comal", root)]
    groups += [(f"comal {n}", one) for n, one in commands(root) if isinstance(one, click.Group)]
    tables = [
        "\n".join([f"### {name}\n", "| option | of | does |", "|---|---|---|", *rows(group)])
        for name, group in groups
    ]
    return "\n".join([HEAD, "\n\n".join(tables), "", END])


def written(text: str) -> str:
    """The page with the section that it shall have."""
    before, _, rest = text.partition(HEAD)
    return before + section() + rest.partition(END)[2]


if __name__ == "__main__":
    old = PAGE.read_text()
    new = written(old)
    if "--check" not in sys.argv:
        PAGE.write_text(new)
    elif new != old:
        sys.exit("docs/cli.md is behind: run scripts/cli_options.py")
