"""Download one file of a model hub over HTTPS, resuming a partial download.

`HF_ENDPOINT` names another server with the same `resolve` addresses; `HF_TOKEN` opens gated models.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from podium._util.addresses import proxy_for, redact_url, strip_credentials
from podium._util.files import Progress, explain_write_errors, move_into_place, sha256_file
from podium.core.errors import ConfigError
from podium.workers.local.sources import DamagedDownload, HubFile

DEFAULT_ENDPOINT: Final = "https://huggingface.co"
CHUNK_BYTES: Final = 1 << 20
RANGE_REFUSED: Final = 416
TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class _Description:
    """The size, checksum and tag of a file, as far as the hub sends them."""

    bytes: int | None
    sha256: str
    tag: str


async def fetch(source: HubFile, target: Path, progress: Progress, sha256: str = "") -> str:
    """Download the file to `target` and return its checksum, which must be `sha256` if given.

    A partial download is kept beside the target under the file's tag and resumed by the next call.
    """
    endpoint = os.environ.get("HF_ENDPOINT", "").strip().rstrip("/") or DEFAULT_ENDPOINT
    url = f"{endpoint}/{source.repository}/resolve/{source.revision}/{source.file}"
    async with _session(endpoint) as session:
        with _network(source, endpoint, target):
            description = await _describe(session, url, source)
        wanted = sha256 or description.sha256
        if description.sha256 not in ("", wanted):
            raise DamagedDownload(
                f"the hub has another {source.name}: its sha256 is {description.sha256}, expected "
                f"{wanted}"
            )
        part = target.with_name(f"{target.name}.{description.tag or 'untagged'}.part")
        if not description.tag:
            _drop(part)
        missing = (description.bytes or 0) - _length(part)
        with explain_write_errors(target.parent, missing), _network(source, endpoint, target):
            await _download(session, url, part, description, progress)
    if description.bytes not in (None, _length(part)):
        length = _length(part)
        _drop(part)
        raise DamagedDownload(
            f"{source.name} has {length:,} bytes, expected {description.bytes:,}; "
            f"the file was deleted, pull it again"
        )
    checksum = await asyncio.to_thread(sha256_file, part)
    if wanted and checksum != wanted:
        _drop(part)
        raise DamagedDownload(
            f"{source.name} is damaged: its sha256 is {checksum}, expected "
            f"{wanted}; the file was deleted, pull it again"
        )
    move_into_place(part, target)
    return checksum


@asynccontextmanager
async def _session(endpoint: str) -> AsyncIterator[aiohttp.ClientSession]:
    try:
        proxy = proxy_for(endpoint)
    except ValueError as error:
        raise ConfigError(
            f"HF_ENDPOINT is {redact_url(endpoint)!r}; give an address such as {DEFAULT_ENDPOINT}"
        ) from error
    token = os.environ.get("HF_TOKEN", "").strip()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(headers=headers, timeout=TIMEOUT, proxy=proxy) as session:
        yield session


@contextmanager
def _network(source: HubFile, endpoint: str, target: Path) -> Iterator[None]:
    """Turn network errors into a `ConfigError` that says what to do."""
    try:
        yield
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ConfigError(
            f"cannot fetch {source.name} from {redact_url(endpoint)}: {_reason(error)}; "
            f"check the network and pull it again to resume the download, or place the "
            f"file at {target}"
        ) from None  # the cause would show signed addresses and a proxy's password


def _reason(error: Exception) -> str:
    """Describe the error without the address, which may be signed."""
    if isinstance(error, aiohttp.ClientResponseError):
        return f"HTTP {error.status} {error.message}".strip()
    if isinstance(error, aiohttp.InvalidURL):
        return "the address of the hub or of the proxy is not valid"
    return strip_credentials(str(error)) or type(error).__name__


async def _describe(session: aiohttp.ClientSession, url: str, source: HubFile) -> _Description:
    """Request the file's size and checksum, which the hub sends before redirecting."""
    async with session.head(
        url, allow_redirects=True, headers={"Accept-Encoding": "identity"}
    ) as response:
        _check(response, source)
        headers: dict[str, str] = {}
        for answer in (response, *reversed(response.history)):
            headers.update((name.lower(), value) for name, value in answer.headers.items())
    tag = headers.get("x-linked-etag", headers.get("etag", "")).removeprefix("W/").strip('"')
    size = headers.get("x-linked-size", response.headers.get("Content-Length", ""))
    return _Description(
        bytes=int(size) if size.isdigit() else None,
        sha256=tag if _SHA256.fullmatch(tag) else "",
        tag=re.sub(r"[^\w-]", "", tag)[:64],
    )


async def _download(
    session: aiohttp.ClientSession,
    url: str,
    part: Path,
    description: _Description,
    progress: Progress,
) -> None:
    """Download the rest of the file; start over if the server cannot resume."""
    done = _length(part)
    if done and done == description.bytes:
        return
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    async with session.get(url, headers=headers) as response:
        if response.status == RANGE_REFUSED:
            _drop(part)  # it is no beginning of this file
        response.raise_for_status()
        done = done if response.status == 206 else 0
        with part.open("ab" if done else "wb") as file:
            progress(done, description.bytes)
            async for chunk in response.content.iter_chunked(CHUNK_BYTES):
                await asyncio.to_thread(file.write, chunk)
                done += len(chunk)
                progress(done, description.bytes)


def _check(response: aiohttp.ClientResponse, source: HubFile) -> None:
    if response.status in (401, 403):
        raise ConfigError(
            f"the hub denies access to {source.name}: it is private, asks you to accept "
            f"its licence, or does not exist; set HF_TOKEN to a token that may read it"
        )
    if response.status == 404:
        raise ConfigError(
            f"the hub has no {source.name}; check the owner, the repository and the file"
        )
    response.raise_for_status()


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _drop(part: Path) -> None:
    part.unlink(missing_ok=True)
