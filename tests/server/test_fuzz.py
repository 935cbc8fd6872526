"""Whatever is sent, the server answers, soon, and never with a fault of its own: requests drawn
from our own OpenAPI page, and bodies that clients send with something in them gone wrong."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any, Final

import httpx
import pytest
import schemathesis
from hypothesis import given, settings
from hypothesis import strategies as st
from schemathesis.config import GenerationConfig, ProjectConfig, ProjectsConfig, SchemathesisConfig

from podium.server.app import create_app
from podium.server.operation.startup import DIALECTS
from podium.server.service import Service
from support.loopback import PATIENCE, House


async def _never(stack: AsyncExitStack) -> Service:
    raise AssertionError("only the page is looked at")


GENERATION: Final = GenerationConfig(deterministic=True, with_security_parameters=False)
CONFIGURATION: Final = SchemathesisConfig(
    projects=ProjectsConfig(default=ProjectConfig(generation=GENERATION))
)
PAGE: Final = create_app(_never, DIALECTS).openapi()
SCHEMA: Final = schemathesis.openapi.from_dict(PAGE, config=CONFIGURATION)


@SCHEMA.parametrize()
@settings(max_examples=25)
def test_what_the_page_allows_and_what_it_does_not_is_answered(
    opened_house: House, case: schemathesis.Case[Any]
) -> None:
    headers = {"Authorization": f"Bearer {opened_house.token}"}
    response = case.call(base_url=opened_house.address, headers=headers, timeout=PATIENCE)
    check(response.status_code, response.text)


IMAGE: Final = "data:image/png;base64,iVBORw0KGgo="
FORM: Final = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

BODIES: Final[dict[str, list[dict[str, Any]]]] = {
    "/v1/chat/completions": [
        {
            "model": "podium-ultra",
            "messages": [
                {"role": "system", "content": "Be kind."},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is this?"},
                        {"type": "image_url", "image_url": {"url": IMAGE, "detail": "low"}},
                    ],
                },
            ],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": FORM, "strict": True},
            },
            "stream": True,
            "stream_options": {"include_usage": True},
            "stop": ["END"],
            "temperature": 0.5,
            "max_completion_tokens": 100,
            "reasoning_effort": "low",
            "podium": {"budget": {"usd": 0.5, "calls": 9}, "exclude": ["plain"], "rounds": 2},
        },
        {
            "model": "solver",
            "messages": [
                {"role": "user", "content": "What time is it?"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "call_0123456789abcdef_1",
                            "type": "function",
                            "function": {"name": "clock", "arguments": "{}"},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "call_0123456789abcdef_1", "content": "12:00"},
            ],
            "tools": [
                {"type": "function", "function": {"name": "clock", "parameters": FORM}},
            ],
            "tool_choice": {"type": "function", "function": {"name": "clock"}},
        },
    ],
    "/v1/responses": [
        {
            "model": "podium-ultra",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Why?"}]},
                {
                    "type": "message",
                    "id": "msg_1",
                    "role": "assistant",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": "So.", "annotations": []}],
                },
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "none"},
                {"role": "user", "content": [{"type": "input_image", "image_url": IMAGE}]},
            ],
            "instructions": "Be kind.",
            "text": {"format": {"type": "json_schema", "name": "n", "schema": FORM}},
            "reasoning": {"effort": "high", "summary": "auto"},
            "stream": True,
            "include": ["reasoning.encrypted_content"],
            "podium": {
                "workflow": {"steps": [{"worker": "seer", "subtask": "Look.", "access": []}]}
            },
        },
        {
            "model": "podium-mini",
            "previous_response_id": "resp_0123456789abcdef",
            "input": [
                {"type": "function_call", "call_id": "call_1", "name": "clock", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_1", "output": "12:00"},
            ],
            "tools": [{"type": "function", "name": "clock", "parameters": FORM, "strict": True}],
            "tool_choice": "required",
            "store": False,
            "metadata": {"who": "me"},
        },
    ],
    "/v1/messages": [
        {
            "model": "podium-ultra",
            "max_tokens": 2000,
            "system": [
                {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}
            ],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is this?"},
                        {
                            "type": "image",
                            "source": {
                                "type": "base64",
                                "media_type": "image/png",
                                "data": "iVBORw0KGgo=",
                            },
                        },
                    ],
                }
            ],
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": FORM}},
            "stream": True,
            "stop_sequences": ["END"],
        },
        {
            "model": "solver",
            "max_tokens": 100,
            "messages": [
                {"role": "user", "content": "What time is it?"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Hm.", "signature": "none"},
                        {"type": "tool_use", "id": "toolu_1", "name": "clock", "input": {}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "12:00"}
                    ],
                },
            ],
            "tools": [{"name": "clock", "description": "the time", "input_schema": FORM}],
            "tool_choice": {"type": "any"},
            "metadata": {"user_id": "me"},
        },
    ],
    "/v1/plan": [
        {"question": "Compare tea and coffee.", "model": "podium", "podium": {"max_steps": 2}}
    ],
    "/v1/messages/count_tokens": [
        {"model": "podium", "messages": [{"role": "user", "content": "Why?"}], "system": "Be kind."}
    ],
}
"""What clients send, by address."""

ODD: Final[list[Any]] = [
    *(None, True, False, 0, -1, 5.0, 0.1, 2**63, -(2**200), 1e308, float("nan"), float("inf")),
    *("", " ", "podium", "\x00", "\ud800", "é\u202e", "x" * 5000, "{}", "https://[", "data:,"),
    *("call_0123456789abcdef_1", "resp_0123456789abcdef", "run_", "../../etc/passwd", "%s%n"),
    *([], {}, [[]], [None], [{}], {"": None}, {"type": "object"}, {"$ref": "#"}, {"type": []}),
    {"type": "string", "pattern": "(a+)+$"},
]


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where in a body something can go wrong."""
    if here:
        yield here
    if isinstance(value, dict | list):
        named = value.items() if isinstance(value, dict) else enumerate(value)
        for name, each in named:
            yield from places(each, (*here, name))


@st.composite
def gone_wrong(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """An address, and a body that clients send there with one to three things changed in it."""
    path = draw(st.sampled_from(sorted(BODIES)))
    body = copy.deepcopy(draw(st.sampled_from(BODIES[path])))
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(list(places(body))))
        inside: Any = body
        for name in way:
            inside = inside[name]
        match draw(st.sampled_from(["other", "gone", "wrapped", "more", "elsewhere"])):
            case "other":
                inside[last] = copy.deepcopy(draw(st.sampled_from(ODD)))
            case "gone":
                del inside[last]
            case "wrapped":
                inside[last] = draw(st.sampled_from([[inside[last]], {"text": inside[last]}]))
            case "more" if isinstance(inside, dict):
                inside[draw(st.sampled_from(["n", "type", "podium", "zone", ""]))] = inside[last]
            case "more":
                inside.extend([inside[last]] * draw(st.sampled_from([1, 200])))
            case "elsewhere":
                inside[last] = copy.deepcopy(draw(st.sampled_from(list(BODIES.values())))[0])
        if not body:
            break
    return path, body


@given(drawn=gone_wrong())
@settings(max_examples=400)
def test_a_body_with_something_wrong_in_it_is_answered(
    opened_house: House, drawn: tuple[str, dict[str, Any]]
) -> None:
    path, body = drawn
    answered(opened_house, path, json.dumps(body).encode())


RAW: Final = {
    "nothing": b"",
    "white space": b" \n",
    "half an object": b'{"model": "podium", "messages": [',
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "not UTF-8": b'{"model": "\xff\xfe"}',
    "UTF-16": '{"model": "podium"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"model": "podium"}',
    "a long number": b'{"model": ' + b"9" * 10_000 + b"}",
    "the same key twice": b'{"model": "podium", "model": "solver"}',
    "not JSON": b"model=podium&messages=Why%3F",
    "nothing but a name": b'"podium"',
}


@pytest.mark.parametrize("path", sorted(BODIES))
@pytest.mark.parametrize("raw", RAW)
def test_what_is_no_body_is_refused_in_words(house: House, path: str, raw: str) -> None:
    assert answered(house, path, RAW[raw]) == 400


@given(drawn=gone_wrong(), where=st.integers(0, 10_000), what=st.binary(max_size=4))
@settings(max_examples=60)
def test_a_body_with_some_bytes_changed_is_answered(
    opened_house: House, drawn: tuple[str, dict[str, Any]], where: int, what: bytes
) -> None:
    path, body = drawn
    whole = json.dumps(body).encode()
    where %= len(whole)
    answered(opened_house, path, whole[:where] + what + whole[where + len(what) :])


HEADERS: Final = {
    "X-Podium-Budget": ("usd", "usd=", "usd=x", "calls=1e99", "=1", ",", "calls=-1", "\xe9=1"),
    "X-Podium-Exclude": ("", ",", "nobody", "solver-works,seer-works,plain-works"),
    "X-Podium-Max-Steps": ("0", "-1", "1.5", "nan", "9" * 400, "inf"),
    "X-Podium-Rounds": ("0", "1e400", "x"),
    "X-Podium-Workflow": ("", "{", "[]", '{"steps": []}', '{"steps": [{"worker": "nobody"}]}'),
    "X-Podium-Trace": ("", "2", "true"),
    "Authorization": ("Bearer", "Basic x", "Bearer pk__", "Bearer " + "x" * 5000, "\xff"),
    "anthropic-version": ("", "1999"),
}


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/plan"])
def test_headers_that_say_odd_things_are_answered(house: House, header: str, path: str) -> None:
    body = {"model": "podium-ultra", "messages": [{"role": "user", "content": "Why?"}]}
    for value in HEADERS[header]:
        answered(house, path, json.dumps(body).encode(), {header: value})


def answered(house: House, path: str, body: bytes, more: dict[str, str] | None = None) -> int:
    """The status of the answer, which is no fault of the server's and says what is wrong."""
    usual = {"Authorization": f"Bearer {house.token}", "Content-Type": "application/json"}
    headers = httpx.Headers(usual | (more or {}), encoding="latin-1")
    response = house.http.post(path, content=body, headers=headers)
    if response.status_code >= 400:
        assert response.json()["error"]["message"]
    return check(response.status_code, response.text)


def check(status: int, said: str) -> int:
    """The status, which is no fault of the server's. That a worker does not write JSON that fits
    whatever schema was drawn is the worker's."""
    assert status < 500 or (status == 502 and "twice for JSON" in said), said[:500]
    assert "the server failed" not in said
    return status
