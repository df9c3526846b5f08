"""ZIP archives over byte ranges: written front to back, read by their directory.

`ZipWriter` appends entries to a file; `directory_plan` fetches and parses a central directory;
`local_before` compares a payload's local header with its index entry; `check_plan` lists
every error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.ziparchive.check import check_plan as check_plan
    from comal.ziparchive.check import content_plan as content_plan
    from comal.ziparchive.check import dead_bytes as dead_bytes
    from comal.ziparchive.check import local_plan as local_plan
    from comal.ziparchive.check import problems as problems
    from comal.ziparchive.directory import Directory as Directory
    from comal.ziparchive.directory import directory_bytes_plan as directory_bytes_plan
    from comal.ziparchive.directory import directory_plan as directory_plan
    from comal.ziparchive.directory import parse_directory as parse_directory
    from comal.ziparchive.headermaking import Details as Details
    from comal.ziparchive.headermaking import packed_archives as packed_archives
    from comal.ziparchive.local import LocalHeader as LocalHeader
    from comal.ziparchive.local import extracted as extracted
    from comal.ziparchive.local import local_before as local_before
    from comal.ziparchive.local import parse_local as parse_local
    from comal.ziparchive.local import prefix_size as prefix_size
    from comal.ziparchive.raw import StoredDirectory as StoredDirectory
    from comal.ziparchive.raw import stored_directory_plan as stored_directory_plan
    from comal.ziparchive.wire import DEFLATE as DEFLATE
    from comal.ziparchive.wire import STORE as STORE
    from comal.ziparchive.write import Reserved as Reserved
    from comal.ziparchive.write import Span as Span
    from comal.ziparchive.write import ZipWriter as ZipWriter

__all__, __getattr__, __dir__ = exports(__name__, guard=False)
