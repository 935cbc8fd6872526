"""Thinking in Anthropic's blocks, on its way to the client and back.

`signature` and `data`, which clients hand back unread, hold a seal: the thinking as the worker
did it, with the model that did it. The words of a thinking block are for people, and may tell of
Podium's progress as well; they are not read again.

A stream has to close its block of thinking before the text begins, when nothing can be sealed
yet. Such a block is signed `SHOWN`, and the seal follows in a block of its own.

How much thinking is asked for comes in tokens, and is an effort to everybody else.
"""

from __future__ import annotations

from typing import Any, Final

from podium.request import Effort, Thinking
from podium.server.dialects.fields import Fields, text
from podium.server.dialects.seals import seal, unsealed

SHOWN: Final = "podium.shown"
"""Signs a block with nothing sealed in it: some clients drop thinking without a signature."""

LOW_THINKING: Final = 4_096
HIGH_THINKING: Final = 16_384
"""Tokens: a budget for thinking below the first is low effort, from the second on high."""


def thinking_block(thinking: tuple[Thinking, ...], *, in_words: bool) -> dict[str, Any]:
    """A block that shows the thinking, or only keeps it."""
    words = "\n\n".join(part.text for part in thinking if part.text) if in_words else ""
    return {"type": "thinking", "thinking": words, "signature": seal(thinking) or SHOWN}


def sealed_block(sealed: str) -> dict[str, Any]:
    """A block that holds a seal and shows nothing."""
    return {"type": "redacted_thinking", "data": sealed}


def thinking_of(block: Fields) -> tuple[Thinking, ...]:
    """What a `thinking` or `redacted_thinking` block holds for the model that thought it."""
    if block.values.get("type") == "thinking":
        block.only(("type", "thinking", "signature"))
        block.required("thinking", text)
        return unsealed(block.required("signature", text), block.at("signature"))
    block.only(("type", "data"))
    return unsealed(block.required("data", text), block.at("data"))


def effort_of_thinking(tokens: int | None) -> Effort | None:
    """The effort that a budget for thinking stands for."""
    if tokens is None:
        return None
    if tokens < LOW_THINKING:
        return "low"
    return "medium" if tokens < HIGH_THINKING else "high"
