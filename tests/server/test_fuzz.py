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

from benchmarks.chaos.fuzz import BODIES, HEADERS, ODD
from podium.server.app import create_app
from podium.server.service import Service
from podium.server.startup import DIALECTS
from support.loopback import PATIENCE, Runtime


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
def test_documented_requests_are_answered_or_refused(
    opened_runtime: Runtime, case: schemathesis.Case[Any]
) -> None:
    headers = {"Authorization": f"Bearer {opened_runtime.token}"}
    response = case.call(base_url=opened_runtime.address, headers=headers, timeout=PATIENCE)
    check(response.status_code, response.text)


def positions(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where in a body something can go wrong."""
    if here:
        yield here
    if isinstance(value, dict | list):
        named = value.items() if isinstance(value, dict) else enumerate(value)
        for name, item in named:
            yield from positions(item, (*here, name))


@st.composite
def gone_wrong(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """An address, and a body that clients send there with one to three things changed in it."""
    path = draw(st.sampled_from(sorted(BODIES)))
    body = copy.deepcopy(draw(st.sampled_from(BODIES[path])))
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(list(positions(body))))
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
    opened_runtime: Runtime, drawn: tuple[str, dict[str, Any]]
) -> None:
    path, body = drawn
    answered(opened_runtime, path, json.dumps(body).encode())


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
def test_invalid_bodies_are_refused_with_a_message(runtime: Runtime, path: str, raw: str) -> None:
    assert answered(runtime, path, RAW[raw]) == 400


@given(drawn=gone_wrong(), where=st.integers(0, 10_000), what=st.binary(max_size=4))
@settings(max_examples=60)
def test_a_body_with_some_bytes_changed_is_answered(
    opened_runtime: Runtime, drawn: tuple[str, dict[str, Any]], where: int, what: bytes
) -> None:
    path, body = drawn
    whole = json.dumps(body).encode()
    where %= len(whole)
    answered(opened_runtime, path, whole[:where] + what + whole[where + len(what) :])


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/plan"])
def test_headers_that_say_odd_things_are_answered(runtime: Runtime, header: str, path: str) -> None:
    body = {"model": "podium-ultra", "messages": [{"role": "user", "content": "Why?"}]}
    for value in HEADERS[header]:
        answered(runtime, path, json.dumps(body).encode(), {header: value})


def answered(runtime: Runtime, path: str, body: bytes, more: dict[str, str] | None = None) -> int:
    """The status of the answer, which is no fault of the server's and says what is wrong."""
    usual = {"Authorization": f"Bearer {runtime.token}", "Content-Type": "application/json"}
    headers = httpx.Headers(usual | (more or {}), encoding="latin-1")
    response = runtime.http.post(path, content=body, headers=headers)
    if response.status_code >= 400:
        assert response.json()["error"]["message"]
    return check(response.status_code, response.text)


def check(status: int, said: str) -> int:
    """The status, which is no fault of the server's. That a worker does not write JSON that fits
    whatever schema was drawn is the worker's."""
    assert status < 500 or (status == 502 and "twice for JSON" in said), said[:500]
    assert "internal server error" not in said
    return status
