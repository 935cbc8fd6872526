from __future__ import annotations

import pytest

from podium.server.api_error import ApiError
from podium.server.dialects.content import check_unique_names, find_tool, make_tool, output_schema
from support.readers import refusal


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "a" * 129, None, 1])
def test_a_tool_has_a_name_that_every_provider_takes(name: object) -> None:
    with pytest.raises(ApiError) as caught:
        make_tool(name, None, None, "tools.0")
    assert caught.value.field == "tools.0.name"


def test_a_tool_without_parameters_takes_none() -> None:
    found = make_tool("look", None, None, "tools.0")
    assert found.parameters == {"type": "object", "properties": {}}


def test_two_tools_of_one_name_are_refused() -> None:
    one = make_tool("look", None, None, "tools.0")
    with pytest.raises(ApiError, match="two tools are named 'look'"):
        check_unique_names((one, one), "tools")


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"$id": 7}, "f.$id"),
        ({"properties": {"a": {"uniqueItems": 1}}}, "f.properties.a.uniqueItems"),
        ({"items": {"pattern": "(?=a)b"}}, "f"),
    ],
)
def test_the_schema_of_an_answer_is_one_that_replies_can_be_held_against(
    value: object, field: str
) -> None:
    assert refusal(output_schema, value, "f").field == field


def test_the_parameters_of_a_tool_may_have_patterns_that_only_others_can_check() -> None:
    parameters = {"properties": {"a": {"pattern": "(?=a)b"}}}
    assert make_tool("look", None, parameters, "tools.0").parameters == parameters


def test_the_parameters_of_a_tool_have_the_form_of_a_schema() -> None:
    with pytest.raises(ApiError) as caught:
        make_tool("look", None, {"$schema": 5}, "tools.0")
    assert caught.value.field == "tools.0.parameters.$schema"


def test_a_tool_that_is_demanded_is_found_by_its_name() -> None:
    look, listen = (make_tool(name, None, None, "tools.0") for name in ("look", "listen"))
    assert find_tool((look, listen), "listen", "f") is listen


@pytest.mark.parametrize(("name", "problem"), [("smell", "not among"), ("auto", "rename")])
def test_a_tool_that_is_not_there_or_is_named_like_a_choice_cannot_be_demanded(
    name: str, problem: str
) -> None:
    tools = tuple(make_tool(one, None, None, "tools.0") for one in ("look", "auto"))
    with pytest.raises(ApiError, match=problem) as caught:
        find_tool(tools, name, "tool_choice.name")
    assert caught.value.field == "tool_choice.name"
