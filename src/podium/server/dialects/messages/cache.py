"""Where a Messages body marks its prompt for a cache, read as one hint.

Clients put `cache_control` on the body, on the system prompt, on tools and on blocks of messages.
Workers are asked other prompts than the client's, so the places cannot be kept. That there are
marks can: an Anthropic worker gets them where its own prompt can be gone on from. Other workers
cache as they do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podium.request import CacheTime
from podium.server.dialects.base import Json


def cache_time(body: Json) -> CacheTime:
    """How long the prompt is to be kept. Of several times it is the shortest, which never costs
    more than the client has agreed to. The body has been read before."""
    times = {mark.get("ttl") for mark in _marks(body)}
    if not times:
        return ""
    return "1h" if times == {"1h"} else "5m"


def _marks(body: Json) -> Iterator[Json]:
    for holder in (body, *_blocks(body.get("system")), *_blocks(body.get("tools"))):
        yield from _mark(holder)
    for message in body["messages"]:
        for block in _blocks(message["content"]):
            yield from _mark(block)
            for inner in _blocks(block.get("content")):
                yield from _mark(inner)


def _blocks(content: object) -> list[Json]:
    return content if isinstance(content, list) else []


def _mark(holder: Json) -> Iterator[Json]:
    mark = holder.get("cache_control")
    if isinstance(mark, Mapping):
        yield mark
