"""A static server as a store would be: the server of the other tests, with types and CORS."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from tests.servers.http import Handler, HttpServer, Seen

_TYPES = {
    ".css": "text/css",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".json": "application/json",
    ".png": "image/png",
}


class StaticServer(HttpServer):
    """Serves folders and bytes to browsers; pages of other origins may read where `cors` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.cors = False
        self._server.RequestHandlerClass = _Handler

    def mount(self, prefix: str, folder: Path) -> str:
        """Serve the files below a folder; the address of the prefix comes back."""
        return self.serve_folder(folder, prefix)

    def seen(self, part: str) -> list[Seen]:
        """The requests whose path contains `part`."""
        return [request for request in self.requests if part in request.path]


class _Handler(Handler):
    def parse_request(self) -> bool:
        is_right = super().parse_request()
        path, mark, query = self.path.partition("?")
        if path.endswith("/"):
            self.path = f"{path}index.html{mark}{query}"
        found = self.server.owner.find(unquote(path).lstrip("/"))
        if found is not None and self.headers.get("If-Range", found[1]) != found[1]:
            del self.headers["Range"]
        return is_right

    def do_OPTIONS(self) -> None:  # noqa: N802 - the base calls it so
        self._send("", 204 if self._cors else 403, {}, b"", {})

    @property
    def _cors(self) -> bool:
        owner = self.server.owner
        assert isinstance(owner, StaticServer)
        return owner.cors

    def end_headers(self) -> None:
        suffix = Path(self.path.partition("?")[0]).suffix
        self.send_header("Content-Type", _TYPES.get(suffix, "application/octet-stream"))
        self.send_header("Cache-Control", "no-cache")
        if self._cors:
            self.send_header("Access-Control-Allow-Origin", "*")
        super().end_headers()

    def _write(self, data: bytes) -> None:
        if self.command != "HEAD":
            super()._write(data)
