"""``comal convert`` from RaQuet to Tapalcatl: a raster drawn as tiles for maps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comal.cli.options import Style
from comal.cli.output import working
from comal.convert import draw
from comal.errors import NotThisFormatError, without_secrets
from comal.formats import sniff


def handles(source: str, output: str) -> bool:
    """Whether a RaQuet file becomes a tileset; a manifest of samples is Parquet as well."""
    if Path(without_secrets(source)).suffix.lower() != ".parquet":
        return False
    if Path(output).suffix.lower() not in {"", ".zip"}:
        return False
    try:
        return sniff(source).format.name == "raquet"
    except NotThisFormatError:
        return False


def run(source: str, output: str, style: Style, *, overwrite: bool) -> Mapping[str, Any]:
    """Draw, and tell what was written."""
    with working(f"drawing {source}", style) as progress:
        made = draw(source, output, overwrite=overwrite, progress=progress)
    return {"from": "raquet", "to": "tapalcatl", "tiles": made.tiles, "archives": made.archives}
