"""What OpenAI's two dialects, Chat Completions and Responses, have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from podium.request import Detail
from podium.server.dialects.fields import choice, joined, opened, text_of
from podium.server.refusal import invalid

DETAILS: Final[tuple[Detail, ...]] = ("auto", "low", "high", "original")

VERBOSITY: Final[Mapping[str, str]] = {
    "low": "Keep your answer short.",
    "medium": "",
    "high": "Answer at length and in detail.",
}
"""How long an answer should be, as OpenAI's clients say it, in words that any worker follows."""


def detail(value: object, path: str) -> Detail:
    """How closely to look at a picture, in OpenAI's words."""
    return choice(DETAILS)(value, path)


def verbosity(value: object, path: str) -> str:
    """How long the answer should be, in words for the workers; empty where it is as usual."""
    return VERBOSITY[choice(tuple(VERBOSITY))(value, path)]


def metadata(value: object, path: str) -> dict[str, str]:
    """OpenAI's notes of the client's own: at most 16 pairs of texts."""
    pairs = opened(value, path).values
    if len(pairs) > 16:
        raise invalid(path, f"{path}: expected at most 16 pairs, got {len(pairs)}")
    for key in pairs:
        text_of(1, 64)(key, path)
    return {key: text_of(0, 512)(pairs[key], joined(path, key)) for key in pairs}
