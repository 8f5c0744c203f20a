"""Style, scripts and icons: read once, packed once, named with a digest so that a browser keeps them for good."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from slurm_fairshare.web.answers import Answer

HOME = Path(__file__).parent / "static"
KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOR_GOOD = "public, max-age=31536000, immutable"
BRIEFLY = "public, max-age=300"


class StaticFiles:
    """All files that are served as they are, by their name below `static/`."""

    def __init__(self, home: Path = HOME) -> None:
        self.files = {
            str(path.relative_to(home)): Answer.of(path.read_bytes(), KINDS[path.suffix])
            for path in sorted(home.rglob("*"))
            if path.suffix in KINDS
        }

    def address(self, name: str) -> str:
        """Where a page finds the file; with its digest, so that a new version is a new address."""
        return f"/static/{name}?v={self._digest(name)}"

    def _digest(self, name: str) -> str:
        return self.files[name].tag[3:13]

    def response(self, request: Request, name: str) -> Response:
        found = self.files.get(name)
        if found is None:
            return PlainTextResponse("There is no such file.", status_code=404)
        lasting = request.query_params.get("v") == self._digest(name)
        return found.response(request, FOR_GOOD if lasting else BRIEFLY)
