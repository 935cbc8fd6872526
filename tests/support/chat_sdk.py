"""The openai SDK and its types over the Chat Completions dialect, without a network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pydantic
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from podium.server.api_error import ApiError
from podium.server.dialects.chat import CHAT
from podium.server.dialects.request import ApiRequest, ApiResponse
from support.openai_sdk import streamed
from support.readers import read_strictly

OURS = {
    "reasoning_content",
    "orchestration_input_tokens",
    "orchestration_input_cached_tokens",
    "orchestration_output_tokens",
}
"""The fields that we may add to what the SDK's types know."""


def checked(document: dict[str, Any]) -> ChatCompletion:
    """A completion that fits the SDK's type to the letter."""
    found = ChatCompletion.model_validate(document, strict=True)
    assert set(_extras(found)) <= OURS
    return found


def checked_chunk(document: dict[str, Any]) -> ChatCompletionChunk:
    """A chunk that fits the SDK's type to the letter."""
    found = ChatCompletionChunk.model_validate(document, strict=True)
    assert set(_extras(found)) <= OURS
    return found


def events(stream: bytes) -> list[Any]:
    """The data of a stream's events, which ends with [DONE]; comments are left out."""
    blocks = stream.decode().split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    return [json.loads(block.removeprefix("data: ")) for block in blocks[:-2] if block[0] != ":"]


def chunks(stream: bytes) -> list[ChatCompletionChunk]:
    """The chunks of a stream that has no error in it."""
    return [checked_chunk(document) for document in events(stream)]


class SdkServer:
    """A client of the real SDK whose requests are read, and answered as the test says.

    `asked` holds what was read. The answer to each request is the next of `answers`: an Answer, a
    Refusal, or the pieces of a stream.
    """

    def __init__(self, *answers: ApiResponse | ApiError) -> None:
        self.asked: list[ApiRequest] = []
        self._answers = list(answers)
        transport = httpx2.MockTransport(self._answer)
        self.client = OpenAI(
            api_key="none",
            base_url="http://podium.test/v1",
            max_retries=0,
            http_client=httpx2.Client(transport=transport),
        )

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        try:
            asked = read_strictly(CHAT, json.loads(request.content))
        except ApiError as refusal:
            return _refused(refusal)
        self.asked.append(asked)
        answer = self._answers.pop(0)
        if not asked.stream:
            if isinstance(answer, ApiError):
                return _refused(answer)
            return httpx2.Response(200, json=CHAT.format_response(asked, answer))
        return httpx2.Response(
            200,
            headers={"Content-Type": "text/event-stream"},
            content=b"".join(_streamed(asked, answer)),
        )


def _refused(refusal: ApiError) -> httpx2.Response:
    return httpx2.Response(refusal.status, json=CHAT.format_error(refusal))


def _streamed(asked: ApiRequest, answer: ApiResponse | ApiError) -> Iterator[bytes]:
    pieces = (
        () if isinstance(answer, ApiError) else (word for word in answer.text.split(" ") if word)
    )
    return streamed(CHAT, asked, answer, pieces)


def _extras(model: pydantic.BaseModel) -> Iterator[str]:
    yield from model.model_extra or ()
    for name in type(model).model_fields:
        value = getattr(model, name)
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, pydantic.BaseModel):
                yield from _extras(inner)
