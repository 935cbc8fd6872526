from __future__ import annotations

from typing import Any

import pytest

from support.messages_sdk import asked

MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
TOOL = {"name": "look", "input_schema": {"type": "object"}}


def words(mark: Any = None) -> list[dict[str, Any]]:
    return [{"type": "text", "text": "Hello"} | ({"cache_control": mark} if mark else {})]


def result(mark: Any) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "c", "content": words(mark)}
    return [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [answer]},
    ]


def test_without_cache_control_there_is_no_cache_ttl() -> None:
    assert asked(system=words(), tools=[TOOL]).response_options.cache_ttl == ""


@pytest.mark.parametrize(
    "fields",
    [
        {"cache_control": MARK},
        {"system": words(MARK)},
        {"tools": [TOOL | {"cache_control": MARK}]},
        {"messages": [{"role": "user", "content": words(MARK)}]},
        {"messages": result(MARK)},
    ],
)
def test_a_mark_anywhere_asks_that_the_prompt_be_kept(fields: dict[str, Any]) -> None:
    assert asked(**fields).response_options.cache_ttl == "5m"


def test_the_prompt_is_kept_for_the_shortest_time_that_is_asked_for() -> None:
    assert asked(system=words(HOUR), cache_control=HOUR).response_options.cache_ttl == "1h"
    assert asked(system=words(HOUR), cache_control=MARK).response_options.cache_ttl == "5m"
