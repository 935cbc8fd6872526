"""Whether an answer of the server is one that a client of its dialect can read, whatever was asked:
a whole answer, a stream of events that ends as it should, or an error in the dialect's form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

SPOILED: Final = "twice for JSON"
"""In the words of an answer that failed because a worker wrote no JSON that fits the schema asked
for: no fault of the server's, and there are schemas that nothing fits."""


class Unfit(Exception):
    """What is wrong with an answer."""


@dataclass(frozen=True, slots=True)
class Said:
    """An answer as it was sent."""

    status: int
    media_type: str
    body: bytes

    @property
    def is_spoiled(self) -> bool:
        """Whether a worker could not do what the schema demands."""
        return SPOILED.encode() in self.body


def judge(said: Said, path: str) -> None:
    """Raise `Unfit` for an answer that no client should have to read."""
    if said.status >= 500 and not (said.status == 502 and said.is_spoiled):
        raise Unfit(f"answered {said.status}: {said.body[:300]!r}")
    if b"the server failed" in said.body:
        raise Unfit(f"failed within: {said.body[:300]!r}")
    if said.media_type.startswith("text/event-stream"):
        _judge_stream(said.body, path)
        return
    if said.media_type != "application/json":
        raise Unfit(f"the answer is {said.media_type!r}")
    document = _object(said.body.decode())
    if said.status == 200:
        if document.get("object" if path != MESSAGES else "type") != WHOLE[path]:
            raise Unfit(f"no answer of this dialect: {said.body[:300]!r}")
    elif said.status >= 400:
        ERRORS[path](document)
    else:
        raise Unfit(f"answered {said.status}")


CHAT: Final = "/v1/chat/completions"
RESPONSES: Final = "/v1/responses"
MESSAGES: Final = "/v1/messages"
WHOLE: Final = {CHAT: "chat.completion", RESPONSES: "response", MESSAGES: "message"}


def _object(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise Unfit(f"not JSON ({error}): {text[:300]!r}") from None
    if not isinstance(document, Mapping):
        raise Unfit(f"no object: {text[:300]!r}")
    return document


def _no_constant(name: str) -> None:
    raise Unfit(f"{name} is not JSON")


def _openai_error(document: Mapping[str, Any]) -> None:
    error = document.get("error")
    if document.keys() != {"error"} or not isinstance(error, Mapping):
        raise Unfit(f"no error of OpenAI's form: {document!r:.300}")
    if not {"message", "type", "param", "code"} <= error.keys():
        raise Unfit(f"an error without its fields: {error!r:.300}")
    _words(error)


def _anthropic_error(document: Mapping[str, Any]) -> None:
    error = document.get("error")
    if document.get("type") != "error" or not isinstance(error, Mapping):
        raise Unfit(f"no error of Anthropic's form: {document!r:.300}")
    _words(error)


def _words(error: Mapping[str, Any]) -> None:
    message, kind = error.get("message"), error.get("type")
    if not (isinstance(message, str) and message and isinstance(kind, str) and kind):
        raise Unfit(f"an error without words: {error!r:.300}")
    if len(message) > 4000:
        raise Unfit(f"an error of {len(message)} characters")


ERRORS: Final[Mapping[str, Callable[[Mapping[str, Any]], None]]] = {
    CHAT: _openai_error,
    RESPONSES: _openai_error,
    MESSAGES: _anthropic_error,
}


def _judge_stream(body: bytes, path: str) -> None:
    *documents, last = _data(body.decode())
    for text in documents:
        _object(text)
    if path == CHAT:
        if last != "[DONE]":
            raise Unfit(f"a stream that ends with {last[:300]!r}")
        return
    kind = _object(last).get("type")
    if kind not in ENDINGS[path]:
        raise Unfit(f"a stream that ends with {kind!r}")


ENDINGS: Final = {
    RESPONSES: ("response.completed", "response.incomplete", "response.failed", "error"),
    MESSAGES: ("message_stop", "error"),
}


def _data(text: str) -> Iterator[str]:
    """The data of each event; comments, which keep a connection alive, have none."""
    events = text.split("\n\n")
    if events.pop():
        raise Unfit("a stream that breaks off in an event")
    for event in events:
        lines = [line for line in event.split("\n") if line and not line.startswith(":")]
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        named = [line for line in lines if line.startswith("event: ")]
        if lines and (len(data) != 1 or len(data) + len(named) != len(lines)):
            raise Unfit(f"no event: {event[:300]!r}")
        yield from data
