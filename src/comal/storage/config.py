"""How storage is spoken to: one frozen value that travels with a source into other processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from comal.limits import KIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig:
    """Settings of remote reading. Times are seconds, sizes bytes.

    It is picklable as long as `credential_provider` is.
    """

    concurrency: int = 64
    """Requests in flight at once, in one process."""
    coalesce_gap: int = 64 * KIB
    """Two ranges that are at most this far apart are asked for in one request."""
    max_request: int = 8 * MIB
    """Ranges are not merged beyond this, and a longer one is fetched in parts of this size."""
    multi_range: bool = True
    """Ask for many ranges of one object in one HTTP request, where a server has shown that it
    answers them: when more requests than `concurrency` would be needed, the first of an origin is
    a trial. Off, every range is a request of its own. Object stores know single ranges only."""
    whole_answer: int = 8 * MIB
    """A server that ignores Range is put up with for objects up to this size."""
    tries: int = 4
    """How often one request is tried before it is given up."""
    backoff_first: float = 0.2
    """Upper end of the first random pause between tries; it doubles with each."""
    backoff_limit: float = 8.0
    """No pause between tries is longer, unless the server asks for one."""
    retry_after_limit: float = 30.0
    """Longest pause that a server can ask for by ``Retry-After``."""
    connect_timeout: float = 5.0
    """Longest wait for a connection."""
    idle_timeout: float = 15.0
    """Longest wait for the next byte."""
    total_timeout: float = 60.0
    """Longest time for one request with all its tries, beside what its size adds."""
    slowest: int = 64 * KIB
    """Bytes a second that a large request may take over `total_timeout`."""
    max_redirects: int = 5
    """Redirects that are followed for one request."""
    follow_symlinks: bool = False
    """Whether names below a local folder may lead out of it through symbolic links."""
    memory_map: bool = False
    """Whether local files that stay open (RaQuet, Tapalcatl) are mapped into memory.

    Tiles that are read again and again then cost a copy and no call of the system; the first
    look at a page costs more, and all threads wait while it comes from the disk. A file that
    another program makes shorter in place, or a disk that fails, kills the process (SIGBUS)
    instead of raising an error. What comal itself writes takes its name when it is complete, and
    is safe to map.
    """
    http_headers: Mapping[str, str] = field(default_factory=dict)
    """Headers sent with each HTTP request to the origin that was named, such as a token."""
    s3: Mapping[str, Any] = field(default_factory=dict)
    """Options of obstore's ``S3Store``: ``endpoint``, ``region``, ``skip_signature``, ..."""
    gcs: Mapping[str, Any] = field(default_factory=dict)
    """Options of obstore's ``GCSStore``."""
    azure: Mapping[str, Any] = field(default_factory=dict)
    """Options of obstore's ``AzureStore``: ``account_name``, ``sas_token``, ..."""
    credential_provider: Any = None
    """An obstore credential provider for the stores that are opened with this."""

    def deadline(self, size: int) -> float:
        """Seconds that a request for `size` bytes may take with all its tries."""
        return self.total_timeout + size / self.slowest


DEFAULT_CONFIG = StorageConfig()
