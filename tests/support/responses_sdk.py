"""What the openai SDK makes of what Podium writes in the Responses dialect."""

from __future__ import annotations

import json
from typing import Any, Final

import httpx2
import openai
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from podium.providers.sse import EventReader

STREAM_EVENTS: Final[TypeAdapter[Any]] = TypeAdapter(ResponseStreamEvent)

OUR_OWN: Final = frozenset(
    {
        "store",  # told by the API, and left out of the SDK's types
        "orchestration_input_tokens",
        "orchestration_input_cached_tokens",
        "orchestration_output_tokens",
    }
)
"""Fields that the SDK has no types for, and we tell all the same."""


def valid_response(document: dict[str, Any]) -> Response:
    """The response by the SDK's own types, with no field that is not in them."""
    found = Response.model_validate(json.loads(json.dumps(document)))
    assert unknown_to_the_sdk(found) <= OUR_OWN
    return found


def events_of(stream: bytes) -> list[dict[str, Any]]:
    """The events of a stream, each valid by the SDK's own types and numbered in order."""
    told = EventReader().feed(stream)
    documents = [json.loads(event.data) for event in told]
    assert [event.name for event in told] == [document["type"] for document in documents]
    assert [document["sequence_number"] for document in documents] == list(range(len(told)))
    for document in documents:
        event = STREAM_EVENTS.validate_python(document)
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
