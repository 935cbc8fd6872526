"""The openai SDK and its types over the Responses dialect, without a network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import httpx2
import openai
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from podium.server.api_error import ApiError
from podium.server.dialects.request import ApiRequest, ApiResponse
from podium.server.dialects.responses import RESPONSES
from podium.workers.http import EventReader
from support.openai_sdk import streamed
from support.readers import read_strictly

STREAM_EVENTS: Final[TypeAdapter[Any]] = TypeAdapter(ResponseStreamEvent)

OUR_OWN: Final = frozenset(
    {
        "store",  # sent by the API, and missing from the SDK's types
        "orchestration_input_tokens",
        "orchestration_input_cached_tokens",
        "orchestration_output_tokens",
    }
)
"""Fields that the SDK has no types for, and we tell all the same."""


def valid_response(document: dict[str, Any]) -> Response:
    """The response by the SDK's own types, with no field that is not in them."""
    found = Response.model_validate(json.loads(json.dumps(document)), strict=True)
    assert unknown_to_the_sdk(found) <= OUR_OWN
    return found


def events_of(stream: bytes) -> list[dict[str, Any]]:
    """The events of a stream, each valid by the SDK's own types and numbered in order."""
    result = EventReader().feed(stream)
    documents = [json.loads(event.data) for event in result]
    assert [event.name for event in result] == [document["type"] for document in documents]
    assert [document["sequence_number"] for document in documents] == list(range(len(result)))
    for document in documents:
        event = STREAM_EVENTS.validate_python(document, strict=True)
        assert event.type == document["type"]
        assert unknown_to_the_sdk(event) <= OUR_OWN
    return documents


def unknown_to_the_sdk(value: object) -> set[str]:
    """The names of all fields, however deep, that the SDK's types do not have."""
    if isinstance(value, BaseModel):
        inner = [getattr(value, name) for name in type(value).model_fields]
        return set(value.model_extra or ()).union(*map(unknown_to_the_sdk, inner))
    if isinstance(value, list):
        return set[str]().union(*map(unknown_to_the_sdk, value))
    return set()


def client_that_hears(stream: bytes) -> openai.OpenAI:
    """The SDK's client, before a server that answers with this stream."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=stream)

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    return openai.OpenAI(api_key="none", base_url="http://podium.test/v1", http_client=http)


class SdkServer:
    """Clients of the real SDK whose requests are read, and answered as the test says.

    `asked` holds what was read. The answer to each request is the next of `answers`.
    """

    def __init__(self, *answers: ApiResponse | ApiError) -> None:
        self.asked: list[ApiRequest] = []
        self._answers = list(answers)
        transport = httpx2.MockTransport(self._answer)
        known: dict[str, Any] = {"api_key": "none", "base_url": "http://podium.test/v1"}
        known["max_retries"] = 0
        self.client = openai.OpenAI(**known, http_client=httpx2.Client(transport=transport))
        self.async_client = openai.AsyncOpenAI(
            **known, http_client=httpx2.AsyncClient(transport=transport)
        )

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        try:
            asked = read_strictly(RESPONSES, json.loads(request.content))
        except ApiError as refusal:
            return _refused(refusal)
        self.asked.append(asked)
        answer = self._answers.pop(0)
        if asked.stream:
            stream = b"".join(_streamed(asked, answer))
            events_of(stream)
            kind = {"content-type": "text/event-stream"}
            return httpx2.Response(200, headers=kind, content=stream)
        if isinstance(answer, ApiError):
            return _refused(answer)
        document = RESPONSES.format_response(asked, answer)
        valid_response(document)
        return httpx2.Response(200, json=document)


def _refused(refusal: ApiError) -> httpx2.Response:
    return httpx2.Response(refusal.status, json=RESPONSES.format_error(refusal))


def _streamed(asked: ApiRequest, answer: ApiResponse | ApiError) -> Iterator[bytes]:
    pieces = () if isinstance(answer, ApiError) else answer.text
    return streamed(RESPONSES, asked, answer, pieces)
