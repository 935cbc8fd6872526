"""Which address shows what. Every page of the application is the same `index.html`: which one is
meant is read from the address by the browser. The pages hold nothing that is anybody's, so they
ask for no key; what they show they get from the API, which does."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from podium.server.pages.files import File, files
from podium.server.refusal import Refusal

router = APIRouter(include_in_schema=False)

PAGES: Final = (
    "/",
    "/runs",
    "/runs/{run_id}",
    "/pool",
    "/spend",
    "/learning",
    "/learning/{rest:path}",
    "/docs",
)

FILES: Final = "/static/{path:path}"

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
"""What a page may do: run and ask for what this server has sent, and nothing else. Should a reply
ever find its way into the markup, it can neither run nor call anybody."""

GUARDED: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

FOR_EVER: Final = "public, max-age=31536000, immutable"
ASK_EACH_TIME: Final = "no-cache"


async def page(request: Request) -> Response:
    """The application, whichever of its pages is meant."""
    return _sent(request, files().by_path["index.html"], ASK_EACH_TIME)


def no_such_page(request: Request) -> Response:
    """The application at an address that is none of its pages, where it says so."""
    return _sent(request, files().by_path["index.html"], ASK_EACH_TIME, status=404)


async def static(request: Request) -> Response:
    """A file of the application. One of another version, which a page that was opened before an
    update may still ask for, is answered with what there is now, and not to be kept."""
    path: str = request.path_params["path"]
    version, _, rest = path.partition("/")
    versioned = version.startswith("v-")
    found = files().by_path.get(rest if versioned else path)
    if found is None:
        raise Refusal("not_found", f"there is no file {path[:200]!r} among the pages")
    kept = version == f"v-{files().fingerprint}"
    return _sent(request, found, FOR_EVER if kept else ASK_EACH_TIME)


def _sent(request: Request, file: File, caching: str, status: int = 200) -> Response:
    headers = {
        **GUARDED,
        "Cache-Control": caching,
        "ETag": file.etag,
        "Vary": "Accept-Encoding",
    }
    if status == 200 and file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    content = file.content
    if file.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        content = file.packed
        headers["Content-Encoding"] = "gzip"
    return Response(content, status, media_type=file.media_type, headers=headers)


for address in PAGES:
    router.add_route(address, page, include_in_schema=False)
router.add_route(FILES, static, include_in_schema=False)
