"""ZIP archives over byte ranges: written front to back, read by their directory.

`ZipWriter` appends entries to a file; `directory_plan` fetches and parses a central directory;
`local_before` compares a payload's local header with its index entry; `check_plan` lists
every error.
"""

from comal.ziparchive.check import check_plan, content_plan, dead_bytes, local_plan, problems
from comal.ziparchive.directory import (
    Directory,
    directory_bytes_plan,
    directory_plan,
    parse_directory,
)
from comal.ziparchive.headermaking import Details, packed_archives
from comal.ziparchive.local import (
    LocalHeader,
    extracted,
    local_before,
    parse_local,
    prefix_size,
)
from comal.ziparchive.raw import StoredDirectory, stored_directory_plan
from comal.ziparchive.wire import DEFLATE, STORE
from comal.ziparchive.write import Reserved, Span, ZipWriter

__all__ = [
    "DEFLATE",
    "STORE",
    "Details",
    "Directory",
    "LocalHeader",
    "Reserved",
    "Span",
    "StoredDirectory",
    "ZipWriter",
    "check_plan",
    "content_plan",
    "dead_bytes",
    "directory_bytes_plan",
    "directory_plan",
    "extracted",
    "local_before",
    "local_plan",
    "packed_archives",
    "parse_directory",
    "parse_local",
    "prefix_size",
    "problems",
    "stored_directory_plan",
]
