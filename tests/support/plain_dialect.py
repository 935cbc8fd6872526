"""A dialect of a few lines, for tests of what lies between the dialects and the runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from podium.core.request import Delta, ResponseOptions, user
from podium.server.api_error import ApiError, invalid
from podium.server.dialects.fields import Json
from podium.server.dialects.request import (
    ApiRequest,
    ApiResponse,
    BodyFields,
    read_podium_params,
    unsent_calls,
)


class PlainDialect:
    """`{"model": …, "ask": …, "stream": …}`."""

    fields = BodyFields(frozenset(), {}, {})

    def read(self, body: Json) -> ApiRequest:
        if not isinstance(body.get("ask"), str):
            raise invalid("ask", "expected a text")
        return ApiRequest(
            model=body.get("model", "podium"),
            messages=(user(body["ask"]),),
            response_options=ResponseOptions(effort=body.get("effort")),
            stream=body.get("stream", False),
            store=body.get("store", True),
            previous_response=body.get("previous"),
            shows_reasoning=body.get("reasoning", False),
            params=read_podium_params(body.get("podium", {}), "podium"),
            raw_body=body,
        )

    def format_response(self, asked: ApiRequest, answer: ApiResponse) -> dict[str, Any]:
        return {
            "id": answer.id,
            "model": answer.model,
            "text": answer.text,
            "finish": answer.finish,
            "input": answer.usage.input_tokens,
            "output": answer.usage.output_tokens,
        }

    def stream_writer(self, asked: ApiRequest, opening: ApiResponse) -> PlainWriter:
        return PlainWriter(opening)

    def format_error(self, refusal: ApiError) -> dict[str, Any]:
        return {"refused": refusal.reason, "field": refusal.field, "message": str(refusal)}


@dataclass
class PlainWriter:
    """One JSON array a line: what happened, and with what."""

    opening: ApiResponse

    def begin(self) -> bytes:
        return line("begin", self.opening.id)

    def progress(self, text: str) -> bytes:
        return line("progress", text)

    def thinking(self, text: str) -> bytes:
        return line("thinking", text)

    def text(self, text: str) -> bytes:
        return line("text", text)

    def streams_call(self, name: str) -> bool:
        return name != "whole"

    def tool_call(self, delta: Delta) -> bytes:
        return line("call", delta.call, delta.id, delta.name, delta.text)

    def keep_alive(self) -> bytes:
        return line("alive")

    def end(self, answer: ApiResponse, rest: str = "", calls: Sequence[str] = ()) -> bytes:
        result = self.text(rest) if rest else b""
        result += b"".join(map(self.tool_call, unsent_calls(answer.tool_calls, calls)))
        return result + line("end", answer.finish, answer.usage.output_tokens)

    def fail(self, refusal: ApiError) -> bytes:
        return line("fail", refusal.reason)


def line(*parts: Any) -> bytes:
    return json.dumps(parts).encode() + b"\n"


def lines(body: str | bytes) -> list[list[Any]]:
    return [json.loads(item) for item in body.splitlines()]
