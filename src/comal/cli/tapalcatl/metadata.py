"""``comal tapalcatl metadata``: what a tileset or an archive says, read and changed."""

from __future__ import annotations

import json
from typing import Any

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, print_json, working
from comal.errors import counted
from comal.tapalcatl import edit_metadata
from comal.tapalcatl.writing.labelling import metadata_at


@click.command(
    "metadata",
    cls=Command,
    examples=(
        ("comal tapalcatl metadata tiles/", "all of it, as JSON"),
        ("comal tapalcatl metadata tiles/ name", "one value"),
        ("comal tapalcatl metadata tiles/ --set name=Roads --unset legend", "change it in place"),
        ("comal tapalcatl metadata tiles/ --set 'center=[10.5,50,4]'", "values may be JSON"),
    ),
)
@click.argument("target", metavar="X")
@click.argument("key", required=False)
@click.option("--set", "values", multiple=True, metavar="KEY=VALUE", help="New value; repeatable.")
@click.option("--unset", multiple=True, metavar="KEY", help="Remove a key; repeatable.")
@click.option("--no-archives", is_flag=True, help="Leave the comments of archives as they are.")
@options.pass_style
def command(
    style: options.Style,
    target: str,
    key: str | None,
    values: tuple[str, ...],
    unset: tuple[str, ...],
    *,
    no_archives: bool,
) -> None:
    """Print the metadata of the tileset or archive X, or change them without rewriting tiles."""
    changes: dict[str, Any] = dict(_pair(text) for text in values)
    changes.update(dict.fromkeys(unset))
    if changes:
        with working(f"editing {target}", style) as progress:
            edited = edit_metadata(target, changes, archives=not no_archives, progress=progress)
        comments = counted(edited.archives, "comment")
        text = f"{target}: {', '.join(changes)} changed, {comments} rewritten"
        done({"output": target, **edited.to_dict()}, style, text)
        return
    document = metadata_at(target)
    if key is None:
        if style.json:
            print_json(document)
        else:
            click.echo(json.dumps(document, indent=2, ensure_ascii=True))
        return
    if key not in document:
        raise click.BadParameter(f"{key!r} is not among {', '.join(document)}", param_hint="KEY")
    value = document[key]
    click.echo(value if isinstance(value, str) and not style.json else json.dumps(value))


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
    if value[:1] in {"[", "{"} or value.lstrip("-").replace(".", "", 1).isdecimal():
        try:
            return name, json.loads(value)
        except json.JSONDecodeError as error:
            raise click.BadParameter(f"{value!r} is no JSON", param_hint="--set") from error
    return name, value
