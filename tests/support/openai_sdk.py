"""What the two dialects of OpenAI's have in common before its SDK: the errors that it raises, and a
stream as the server writes one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import openai

from podium.server.api_error import Refusal
from podium.server.dialects.base import Answer, Asked, Dialect

ERRORS: Final = (
    (Refusal("unauthenticated", "no key"), openai.AuthenticationError),
    (Refusal("forbidden", "not yours"), openai.PermissionDeniedError),
    (Refusal("not_found", "no such model", field="model"), openai.NotFoundError),
    (Refusal("conflict", "it goes on already"), openai.ConflictError),
    (Refusal("rate_limited", "too many", retry_after=1), openai.RateLimitError),
    (Refusal("overloaded", "too much"), openai.InternalServerError),
    (Refusal("failed", "our fault"), openai.InternalServerError),
    (Refusal("out_of_budget", "spent"), openai.APIStatusError),
)
"""Refusals, and the errors of the SDK that they become."""


def streamed(
    dialect: Dialect, asked: Asked, answer: Answer | Refusal, pieces: Iterable[str]
) -> Iterator[bytes]:
    """The pieces of a stream that tells the answer, or breaks off with the refusal."""
    writer = dialect.writer(asked, Answer(id="run_1f", model=asked.model, created=1))
    yield writer.begin()
    yield writer.keep_alive()
    if isinstance(answer, Refusal):
        yield writer.text("Half a ")
        yield writer.fail(answer)
        return
    if asked.shows_reasoning:
        yield writer.progress("step 1: solver")
        yield from (writer.thinking(part.text) for part in answer.thinking)
    yield from (writer.text(piece) for piece in pieces)
    yield writer.end(answer)
