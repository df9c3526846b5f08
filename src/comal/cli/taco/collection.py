"""Options for the fields of a collection, and files that hold them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from comal import strictjson
from comal.errors import (
    ComalError,
    InvalidInputError,
    MissingExtraError,
    ObjectNotFoundError,
    translated,
)

_LISTS = {"license": "licenses", "task": "tasks", "keyword": "keywords", "provider": "providers"}
_CORE = frozenset(
    {
        "id",
        "dataset_version",
        "description",
        "licenses",
        "providers",
        "tasks",
        "title",
        "curators",
        "keywords",
        "extent",
    }
)
_READING: Mapping[type[BaseException], type[ComalError]] = {
    FileNotFoundError: ObjectNotFoundError,
    OSError: InvalidInputError,
    ValueError: InvalidInputError,
}


def collection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command receives them by name."""
    options = (
        click.option(
            "--collection",
            metavar="FILE",
            help="JSON, YAML or TOML with fields of the collection; options override it.",
        ),
        click.option("--id", help="Name of the data set: a-z, 0-9, '_', '-'."),
        click.option("--dataset-version", metavar="TEXT", help="Version of the data set."),
        click.option("--title", help="At most 250 characters."),
        click.option("--description", help="What the data set is."),
        click.option("--license", multiple=True, help="SPDX name, such as CC-BY-4.0; repeatable."),
        click.option("--provider", multiple=True, help="Who provides it; repeatable."),
        click.option("--task", multiple=True, help="What it is for: segmentation; repeatable."),
        click.option("--keyword", multiple=True, help="Repeatable."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def collection_fields(collection: str | None, **given: Any) -> dict[str, Any]:
    """Fields of the collection as `pack_folder` takes them: those of the file, then the options.

    Fields that are not of the core of TACO come back under ``extra``.
    """
    fields = read_fields(Path(collection)) if collection else {}
    for name, value in given.items():
        if value:
            fields[_LISTS.get(name, name)] = list(value) if name in _LISTS else value
    if given.get("provider"):
        fields["providers"] = [{"name": name} for name in given["provider"]]
    extra = {name: fields.pop(name) for name in list(fields) if name not in _CORE}
    for computed in ("taco_version", "taco:pit_schema", "taco:field_schema"):
        extra.pop(computed, None)
    return {**fields, "extra": extra} if extra else fields


def read_fields(path: Path) -> dict[str, Any]:
    """A document of fields; the suffix says whether it is JSON, TOML or YAML."""
    with translated(_READING, "collection file cannot be read", where=str(path)):
        data = path.read_bytes()
        if path.suffix.lower() in {".yaml", ".yml"}:
            fields = _yaml(data)
        elif path.suffix.lower() == ".toml":
            fields = tomllib.loads(data.decode())
        else:
            return strictjson.loads(data, str(path))
    if not isinstance(fields, dict):
        raise InvalidInputError("collection file holds no fields", where=str(path))
    return fields


def _yaml(data: bytes) -> Any:
    try:
        yaml = import_module("yaml")
    except ImportError as error:
        raise MissingExtraError.of("PyYAML", "yaml", "a collection in YAML") from error
    try:
        return yaml.safe_load(data)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
