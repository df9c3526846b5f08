"""The command line.

`main` is the entry point. Each command is one file that exports `command`; it is imported when it
is called and not before, so that ``comal --help`` needs no heavy library.
"""

from __future__ import annotations

from comal.cli.root import main, root

__all__ = ["main", "root"]
