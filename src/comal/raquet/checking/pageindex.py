"""The page index: that it leads to the pages which are there.

Readers that fetch one tile trust it, and everybody else passes it over.
"""

from __future__ import annotations

import numpy as np

from comal.errors import NotThisFormatError, shown
from comal.findings import OF_CONTENT, Findings
from comal.plan import run
from comal.raquet.checking.table import Subject
from comal.raquet.reading.part import Part, part_plan


def check_page_index(subject: Subject, findings: Findings) -> None:
    """Open the file as readers do, and compare with what stands in its columns."""
    if not findings.report("", None, "").ok:
        return  # whatever keeps it from being opened has been told
    try:
        part = run(part_plan(subject.source.href, subject.limits), subject.source.fetch)
    except NotThisFormatError:
        return
    except OF_CONTENT as error:
        findings.take_error(error, "raquet-page-index", "page index")
        return
    if len(part.ids) != len(subject.ids) or (part.ids != subject.ids).any():
        findings.add("raquet-page-index", "column block", "the index has other ids than the column")
    for name in part.pages:
        _check_column(subject, part, name, findings)


def _check_column(subject: Subject, part: Part, name: str, findings: Findings) -> None:
    """Pages of a column chunk lie one behind the other and fill it."""
    layout, pages = subject.footer.layout, part.pages[name]
    leaf = layout.leaves[name][0]
    ends = np.cumsum(layout.rows)
    for group, (start, stop) in enumerate(zip(ends - layout.rows, ends, strict=True)):
        offset, size = pages.offset[start:stop], pages.size[start:stop]
        begin = int(layout.start[group, leaf]) + subject.footer.span.offset
        expected = begin + np.cumsum(size) - size
        whole = int(size.sum()) == int(layout.size[group, leaf])
        if len(offset) and not (whole and (offset == expected).all()):
            findings.add(
                "raquet-page-index",
                f"row group {group}, column {shown(name)}",
                "its pages are not those of the column",
            )
