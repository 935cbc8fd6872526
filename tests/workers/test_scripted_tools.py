from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from podium.core.errors import ConfigError
from podium.core.pool import WorkerProfile
from podium.core.request import Message, Request, Tool, ToolCall, ToolResult, user
from podium.core.worker import Worker
from podium.workers import Endpoint, Http, connect

WEATHER = Tool(
    name="get_weather",
    description="The weather in a city.",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "days": {"type": ["integer", "null"]},
        },
    },
)
CLOCK = Tool("clock", "What time it is.", {})
ASKED = Request((user("How is the weather in Paris?"),), tools=(WEATHER, CLOCK))
OPTIONS = {"reply": "hello", "tool_reply": "I hear: {result}", "tool_arguments": {"city": "Paris"}}


def worker(**options: Any) -> Worker:
    profile = WorkerProfile(name="hand", provider="scripted", model="hand")
    return connect(profile, Endpoint(options=options), Http())


async def test_an_offered_tool_is_called_with_arguments_that_fit_it() -> None:
    reply = await worker(**OPTIONS).reply(ASKED)
    (call,) = reply.tool_calls
    assert (reply.text, reply.finish, call.name) == ("", "tool", "get_weather")
    assert json.loads(call.arguments) == {"city": "Paris", "unit": "celsius", "days": 1}


async def test_the_tool_result_is_in_the_answer() -> None:
    call = ToolCall("call_1", "get_weather", "{}")
    said = tuple(ToolResult(f"call_{n}", text) for n, text in enumerate(("sunny", "18 degrees")))
    turns = (*ASKED.messages, Message("assistant", (call,)), Message("tool", said))
    reply = await worker(**OPTIONS).reply(replace(ASKED, messages=turns))
    assert (reply.text, reply.tool_calls) == ("I hear: sunny; 18 degrees", ())


@pytest.mark.parametrize(
    ("choice", "called"), [("", "get_weather"), ("required", "get_weather"), ("clock", "clock")]
)
async def test_the_choice_of_a_tool_is_obeyed(choice: str, called: str) -> None:
    reply = await worker(**OPTIONS).reply(replace(ASKED, tool_choice=choice))
    assert [call.name for call in reply.tool_calls] == [called]


@pytest.mark.parametrize("asked", [replace(ASKED, tools=()), replace(ASKED, tool_choice="none")])
async def test_without_tools_the_scripted_reply_is_returned(asked: Request) -> None:
    assert (await worker(**OPTIONS).reply(asked)).text == "hello"
    assert (await worker(reply="plain").reply(ASKED)).text == "plain"


@pytest.mark.parametrize(
    "options",
    [
        {"tool_reply": "{result}"},
        {"reply": "a", "tool_reply": 3},
        {"reply": ["a"], "tool_reply": "{result}"},
        {"reply": "a", "tool_reply": "b", "tool_arguments": "city"},
    ],
)
def test_a_script_that_is_none_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="tool_reply"):
        worker(**options)
