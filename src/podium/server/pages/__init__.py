"""The web pages: chat, runs, pool, spending, experiments and the API reference.

`static/` is served as it is, without a build step: its files are read once and held in memory,
plain and gzipped. Their URLs hold a common fingerprint, so that browsers cache them for ever and
never mix versions. Pages get all their data from the API, as any client does; sign-in exchanges a
key for a session cookie that scripts cannot read.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from podium.server.access import Principal
from podium.server.access.keys import MAX_TOKEN, SESSION_SECONDS
from podium.server.api_error import ApiError
from podium.server.dialects.fields import bounded_text, read_object
from podium.server.endpoints.http import (
    NO_STORE,
    SESSION_COOKIE,
    PrincipalDep,
    ServiceDep,
    authenticate_request,
    check_request,
    client_address,
    parse_json_object,
)
from podium.server.endpoints.openapi import named_body

STATIC: Final = Path(__file__).parent / "static"

TYPES: Final = MappingProxyType(
    {
        ".html": "text/html; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".css": "text/css; charset=utf-8",
        ".svg": "image/svg+xml",
        ".txt": "text/plain; charset=utf-8",
        ".woff2": "font/woff2",
    }
)
"""Media types by suffix; other files are not served."""

COMPRESSED_TYPES: Final = frozenset({".woff2"})

FINGERPRINT_LENGTH: Final = 12


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file. `packed` is its gzipped content, None if that is not smaller."""

    content: bytes
    packed: bytes | None
    media_type: str
    etag: str


@dataclass(frozen=True, slots=True)
class StaticFiles:
    """All files by their path below `static/`, and their common fingerprint."""

    by_path: Mapping[str, StaticFile]
    fingerprint: str


@cache
def static_files() -> StaticFiles:
    """Read the files that ship with Podium, once."""
    return read_files(STATIC)


def read_files(directory: Path) -> StaticFiles:
    """Read the files of a directory, and put the fingerprint into the URLs in its HTML."""
    contents = {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.suffix in TYPES and path.is_file()
    }
    digest = sha256()
    for name, content in contents.items():
        digest.update(name.encode() + b"\0" + sha256(content).digest())
    fingerprint = digest.hexdigest()[:FINGERPRINT_LENGTH]
    return StaticFiles(
        MappingProxyType(
            {name: _file(name, content, fingerprint) for name, content in contents.items()}
        ),
        fingerprint,
    )


def _file(name: str, content: bytes, fingerprint: str) -> StaticFile:
    suffix = Path(name).suffix
    if suffix == ".html":
        content = content.replace(b'"/static/', f'"/static/v-{fingerprint}/'.encode())
    packed = None if suffix in COMPRESSED_TYPES else gzip.compress(content, mtime=0)
    return StaticFile(
        content=content,
        packed=packed if packed is not None and len(packed) < len(content) else None,
        media_type=TYPES[suffix],
        etag=f'"{sha256(content).hexdigest()[:32]}"',
    )


PAGES: Final = (
    "/",
    "/runs",
    "/runs/{run_id}",
    "/pool",
    "/keys",
    "/spend",
    "/experiments",
    "/experiments/{rest:path}",
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
"""Pages load only from this server. A reply that became markup could not run scripts."""

SECURITY_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

CACHE_IMMUTABLE: Final = "public, max-age=31536000, immutable"
CACHE_REVALIDATE: Final = "no-cache"


async def page(request: Request) -> Response:
    """Return the application, which shows the page of the path."""
    return _respond(request, static_files().by_path["index.html"], CACHE_REVALIDATE)


def not_found_page(request: Request) -> Response:
    """Return the application with status 404; it says that the page does not exist."""
    return _respond(request, static_files().by_path["index.html"], CACHE_REVALIDATE, status=404)


async def static(request: Request) -> Response:
    """Return a file. A page opened before an update gets the current version, uncached."""
    path: str = request.path_params["path"]
    version, _, rest = path.partition("/")
    versioned = version.startswith("v-")
    found = static_files().by_path.get(rest if versioned else path)
    if found is None:
        raise ApiError("not_found", f"there is no file {path[:200]!r} among the pages")
    is_current = version == f"v-{static_files().fingerprint}"
    return _respond(request, found, CACHE_IMMUTABLE if is_current else CACHE_REVALIDATE)


def _respond(request: Request, file: StaticFile, cache_control: str, status: int = 200) -> Response:
    headers = {
        **SECURITY_HEADERS,
        "Cache-Control": cache_control,
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


session_router = APIRouter(prefix="/session", tags=["session"])


def check_same_origin(request: Request, service: ServiceDep) -> None:
    """Refuse requests of other origins, which could sign a user in or out."""
    check_request(request.method, request.headers, service.settings)


@session_router.get("")
async def session(request: Request) -> JSONResponse:
    """Return who is signed in. `name` is null without a key; `keys`: keys are required."""
    try:
        principal: Principal | None = await authenticate_request(request)
    except ApiError as refusal:
        if refusal.reason != "unauthenticated":
            raise
        principal = None
    return _session_document(principal)


@session_router.post(
    "",
    dependencies=[Depends(check_same_origin)],
    responses={401: {"description": "The API key is unknown, revoked or expired."}},
    openapi_extra=named_body("SignIn"),
)
async def sign_in(request: Request, service: ServiceDep) -> Response:
    """Exchange a key for a session of twelve hours, in a cookie. It may do what the key may, and
    ends with it."""
    body = read_object(parse_json_object(await request.body())).reject_unknown(("key",))
    key = body.required("key", bounded_text(1, MAX_TOKEN))
    address = client_address(request.scope)
    token = await service.access.sign_in(key.strip(), address)
    principal = await service.access.authenticate(token, address)
    if token is not None:
        await service.audit.record("signed in", replace(principal, address=address))
    response = _session_document(principal)
    if token is not None:
        _set_cookie(request, response, token, SESSION_SECONDS)
    return response


@session_router.delete("", status_code=204, dependencies=[Depends(check_same_origin)])
async def sign_out(request: Request) -> Response:
    """Delete the session cookie and the browser's cache, which another user may share."""
    response = Response(status_code=204, headers={"Clear-Site-Data": '"cache"'})
    _set_cookie(request, response, "", 0)
    return response


def _session_document(principal: Principal | None) -> JSONResponse:
    document: dict[str, Any] = {"object": "session", "keys": True, "name": None, "scopes": []}
    if principal is not None:
        document["keys"] = bool(principal.key_id)
        document["name"] = principal.name
        document["scopes"] = sorted(principal.scopes)
    return JSONResponse(document, headers={"Cache-Control": NO_STORE})


def _set_cookie(request: Request, response: Response, value: str, seconds: int) -> None:
    response.set_cookie(
        SESSION_COOKIE,
        value,
        max_age=seconds,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


router = APIRouter()
router.include_router(session_router)


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request, principal: PrincipalDep) -> dict[str, Any]:
    """Return the OpenAPI description; it requires an API key where keys are required."""
    description: dict[str, Any] = request.app.openapi()
    return description


for address in PAGES:
    router.add_route(address, page, include_in_schema=False)
router.add_route(FILES, static, include_in_schema=False)
