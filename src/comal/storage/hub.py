"""``hf://`` hrefs: files of repositories on a Hugging Face Hub, by their public URLs.

A pure mapping: the Hub serves every file of a public repository over HTTPS, with ranges and entity
tags, and nothing but that is used.
"""

from __future__ import annotations

import os
import re
from urllib.parse import quote, unquote

from comal.errors import InvalidInputError, shown

SCHEME = "hf"
_ENDPOINT = "https://huggingface.co"
# [datasets/ or spaces/]owner/name[@revision]/path, as the Hub's own clients write it. A revision
# with a slash is percent-encoded, or one of the names that the Hub itself gives.
_HREF = re.compile(
    r"(?P<kind>datasets/|spaces/)?(?!datasets/|spaces/)(?P<repository>\w[\w.-]*/\w[\w.-]*)"
    r"(?:@(?P<revision>refs/(?:convert/\w+|pr/\d+)|[^/@]+))?/(?P<path>[^?#]+)"
)


def hub_url(rest: str) -> str:
    """The URL of what stands behind ``hf://``.

    Parameters
    ----------
    rest
        ``datasets/owner/name/path``, ``datasets/owner/name@revision/path``, or the same without
        ``datasets/`` for a repository of models. Without a revision it is ``main``.

    Returns
    -------
    str
        An HTTPS URL. The environment variable ``HF_ENDPOINT`` names another Hub.

    Raises
    ------
    InvalidInputError
        Something else.
    """
    match = _HREF.fullmatch(rest)
    parts = unquote(match["path"]).split("/") if match is not None else []
    if match is None or not {"", ".", ".."}.isdisjoint(parts):
        raise InvalidInputError(
            "not a file on the Hub",
            where=shown(f"{SCHEME}://{rest}"),
            expected="hf://datasets/owner/name/path or hf://datasets/owner/name@revision/path",
        )
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or _ENDPOINT
    revision = quote(unquote(match["revision"] or "main"), safe="")
    path = "/".join(quote(part, safe="") for part in parts)
    return f"{endpoint}/{match['kind'] or ''}{match['repository']}/resolve/{revision}/{path}"
