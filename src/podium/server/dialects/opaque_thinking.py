"""Thinking that travels through a client and back.

A worker's thinking may hold a provider's own state (a signature, an encrypted block), which only
the model that made it may be handed. Clients know nothing of the models behind a run; what they
do know is to hand a field such as `encrypted_content` back unread. So that field holds a seal:
the thinking as the worker did it, with the model that did it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Final

from podium.core.request import Thinking
from podium.server.api_error import ApiError, invalid
from podium.server.dialects.fields import text

_SEAL: Final = "podium.seal."


def seal(thinking: Iterable[Thinking]) -> str:
    """The thinking, for a client to hand back as it is; empty where no model's name is known."""
    kept = [[part.text, part.opaque, part.model] for part in thinking if part.model]
    if not kept:
        return ""
    document = json.dumps(kept, separators=(",", ":"))
    return _SEAL + base64.b64encode(document.encode()).decode()


def unsealed(words: str, path: str) -> tuple[Thinking, ...]:
    """What is in a seal. What was sealed elsewhere holds nothing: there is no knowing which
    model it could be handed to."""
    if not words.startswith(_SEAL):
        return ()
    try:
        kept = json.loads(base64.b64decode(words.removeprefix(_SEAL), validate=True))
        return tuple(_thinking(*entry, path=path) for entry in kept)
    except (ValueError, TypeError, RecursionError):
        raise _changed(path) from None


def _thinking(words: object, opaque: object, model: object, *, path: str) -> Thinking:
    if not isinstance(model, str) or not model:
        raise _changed(path)
    return Thinking(text(words, path), text(opaque, path), text(model, path))


def _changed(path: str) -> ApiError:
    return invalid(
        path, f"{path}: this is not as Podium gave it; hand it back unchanged, or leave it out"
    )
