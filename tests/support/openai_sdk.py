"""What the two dialects of OpenAI's have in common before its SDK: the errors that it raises, and a
stream as the server writes one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import openai

from podium.server.api_error import ApiError
from podium.server.dialects.request import ApiRequest, ApiResponse, Dialect

ERRORS: Final = (
    (ApiError("unauthenticated", "no key"), openai.AuthenticationError),
    (ApiError("forbidden", "not yours"), openai.PermissionDeniedError),
    (ApiError("not_found", "no such model", field="model"), openai.NotFoundError),
    (ApiError("conflict", "it goes on already"), openai.ConflictError),
    (ApiError("rate_limited", "too many", retry_after=1), openai.RateLimitError),
    (ApiError("overloaded", "too much"), openai.InternalServerError),
    (ApiError("failed", "our fault"), openai.InternalServerError),
    (ApiError("out_of_budget", "spent"), openai.APIStatusError),
)
"""Refusals, and the errors of the SDK that they become."""


def streamed(
    dialect: Dialect, asked: ApiRequest, answer: ApiResponse | ApiError, pieces: Iterable[str]
) -> Iterator[bytes]:
    """The pieces of a stream that tells the answer, or breaks off with the refusal."""
    writer = dialect.stream_writer(asked, ApiResponse(id="run_1f", model=asked.model, created=1))
    yield writer.begin()
    yield writer.keep_alive()
    if isinstance(answer, ApiError):
        yield writer.text("Half a ")
        yield writer.fail(answer)
        return
    if asked.shows_reasoning:
        yield writer.progress("step 1: solver")
        yield from (writer.thinking(part.text) for part in answer.thinking)
    yield from (writer.text(piece) for piece in pieces)
    yield writer.end(answer)
