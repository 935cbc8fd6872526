"""Model servers on this machine, found at the ports where they usually listen.

Looking takes half a second at most: nothing listens at most ports, which shows at once. Only the
list of models is read.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from podium.config.workers import WorkerTable
from podium.workers.endpoints import KNOWN_ENDPOINTS

PROBE_SECONDS: Final = 0.5
"""The longest that the search takes."""

MAX_BYTES: Final = 1_000_000
MAX_MODELS: Final = 8

VARIABLE: Final = "PODIUM_LOCAL_SERVERS"
"""`off`: do not look for model servers on this machine."""


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server, and the models that it lists."""

    provider: str
    base_url: str
    models: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        return urlsplit(self.base_url).netloc

    def workers(self) -> tuple[WorkerTable, ...]:
        """Return its models as workers; a server lists the one to prefer first."""
        usual = KNOWN_ENDPOINTS[self.provider].base_url
        return tuple(
            WorkerTable(
                name=model.rpartition("/")[2].removesuffix(":latest"),
                provider=self.provider,
                model=model,
                description="a model on one's own machine",
                base_url=None if self.base_url == usual else self.base_url,
            )
            for model in self.models[:MAX_MODELS]
        )


DEFAULT_SERVERS: Final = tuple(
    LocalServer(provider, KNOWN_ENDPOINTS[provider].base_url)
    for provider in ("ollama", "lmstudio", "vllm")
)


async def find_local_servers(
    environment: Mapping[str, str], servers: Sequence[LocalServer] | None = None
) -> tuple[LocalServer, ...]:
    """Return those of the servers that answer, the usual ones by default."""
    if environment.get(VARIABLE, "").strip().lower() == "off":
        return ()
    probes = [asyncio.create_task(_probe(one)) for one in servers or DEFAULT_SERVERS]
    done, late = await asyncio.wait(probes, timeout=PROBE_SECONDS)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    return tuple(found for task in probes if task in done and (found := task.result()) is not None)


async def _probe(server: LocalServer) -> LocalServer | None:
    """Return the server with its models, or None if it does not answer as such a server does."""
    try:
        document = json.loads(await _get(server.base_url + "/models"))
        listed = [str(item["id"]) for item in document["data"] or ()]
    except (OSError, ValueError, LookupError, TypeError, EOFError, asyncio.LimitOverrunError):
        return None
    answering = tuple(model for model in listed if "embed" not in model.lower())
    return LocalServer(server.provider, server.base_url, answering)


async def _get(url: str) -> bytes:
    """Fetch a document by HTTP/1.0; importing an HTTP library would take longer than the search."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(f"GET {parts.path} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if head.split(maxsplit=2)[1] != b"200":
            raise ValueError("expected the status 200")
        return await _read_all(reader)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while piece := await reader.read(65_536):
        body += piece
        if len(body) > MAX_BYTES:
            raise ValueError("expected a list of models")
    return body
