from __future__ import annotations

from typing import Any, Final

import pytest

from podium.core.request import ResponseOptions, Tool
from podium.server.api_error import ApiError
from podium.server.dialects.content import MAX_TOOLS
from podium.server.dialects.responses import RESPONSES
from podium.server.dialects.responses_items import ClientToolName, client_tool_names, flat_name
from support.readers import read_strictly

FORM: Final = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER: Final = {"type": "function", "name": "weather", "description": "It.", "parameters": FORM}
HELLO: Final = {"role": "user", "content": "hello"}
PATCH: Final = {"type": "custom", "name": "patch", "description": "Changes files."}


def response_options(*tools: Any, **options: Any) -> ResponseOptions:
    body = {"model": "podium", "input": "hello", "tools": list(tools), **options}
    return read_strictly(RESPONSES, body).response_options


def refused(*tools: Any, **options: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        response_options(*tools, **options)
    assert caught.value.reason == "invalid"
    return caught.value


def test_a_function_is_a_tool() -> None:
    assert response_options(WEATHER).tools == (Tool("weather", "It.", FORM),)


def test_a_function_as_codex_sends_it_is_a_tool() -> None:
    shell = {"type": "function", "name": "shell", "description": "Runs.", "strict": False}
    assert (
        response_options(shell | {"parameters": FORM, "defer_loading": None}).tools[0].name
        == "shell"
    )


def test_a_function_without_parameters_takes_none() -> None:
    assert response_options({"type": "function", "name": "now"}).tools[0].parameters == {
        "type": "object",
        "properties": {},
    }


def test_a_custom_tool_is_a_function_of_one_text() -> None:
    (tool,) = response_options(PATCH).tools
    assert tool.parameters["required"] == ["input"]
    assert tool.description == "Changes files."


def test_the_grammar_of_a_custom_tool_is_told_to_the_worker() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: begin_patch"}
    (tool,) = response_options(PATCH | {"format": grammar}).tools
    assert "Changes files." in tool.description
    assert "start: begin_patch" in tool.description


def test_the_tools_of_a_namespace_are_functions_with_its_name() -> None:
    group = {"type": "namespace", "name": "mcp__docs", "description": "Docs", "tools": [WEATHER]}
    assert [tool.name for tool in response_options(group, WEATHER).tools] == [
        "mcp__docs__weather",
        "weather",
    ]


def test_names_of_workers_lead_back_to_the_clients() -> None:
    group = {"type": "namespace", "name": "n_", "description": "", "tools": [WEATHER, PATCH]}
    spoken = client_tool_names({"tools": [WEATHER, PATCH, group]})
    assert set(spoken) == {"patch", "n_weather", "n_patch"}
    assert (spoken["n_patch"].namespace, spoken["n_patch"].is_custom) == ("n_", True)


def added(*tools: Any) -> dict[str, Any]:
    """An item that adds tools, as Codex has them for models that it knows."""
    return {"type": "additional_tools", "id": "at_1", "role": "developer", "tools": list(tools)}


def test_tools_that_items_add_are_offered_too() -> None:
    functions = {"type": "namespace", "name": "functions", "description": "", "tools": [PATCH]}
    values = [added(functions), HELLO]
    offered = response_options(WEATHER, input=values).tools
    assert [tool.name for tool in offered] == ["weather", "functions__patch"]
    spoken = client_tool_names({"tools": [WEATHER], "input": values})
    assert spoken == {"functions__patch": ClientToolName("patch", "functions", is_custom=True)}


def test_a_tool_that_is_added_again_counts_as_it_was_added_last() -> None:
    later = WEATHER | {"description": "It, in detail."}
    (tool,) = response_options(WEATHER, input=[added(WEATHER), HELLO, added(later)]).tools
    assert tool.description == "It, in detail."


GROUP = {"type": "namespace", "name": "a", "description": "", "tools": [PATCH]}


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [PATCH], "input": [added(WEATHER | {"name": "patch"}), HELLO]},
        {"input": [added(PATCH), HELLO, added(WEATHER | {"name": "patch"})]},
        {"tools": [GROUP], "input": [added(WEATHER | {"name": "a__patch"}), HELLO]},
    ],
)
def test_a_function_that_is_added_later_is_answered_as_it_is_offered(body: dict[str, Any]) -> None:
    (tool,) = read_strictly(RESPONSES, {"model": "podium"} | body).response_options.tools
    assert tool.parameters == FORM
    assert client_tool_names(body) == {}


def test_adding_tools_emits_no_event() -> None:
    calls = [
        {"type": "function_call", "call_id": id_, "name": "weather", "arguments": "{}"}
        for id_ in ("a", "b")
    ]
    results = [
        {"type": "function_call_output", "call_id": id_, "output": "sunny"} for id_ in ("a", "b")
    ]
    values = [HELLO, calls[0], added(WEATHER), calls[1], results[0], added(WEATHER), results[1]]
    read = read_strictly(RESPONSES, {"model": "podium", "input": values})
    assert [message.role for message in read.messages] == ["user", "assistant", "tool"]


@pytest.mark.parametrize(
    ("items", "field"),
    [
        ([added({"type": "oven"}), HELLO], "input.0.tools.0.type"),
        ([HELLO, {"type": "additional_tools", "role": "developer"}], "input.1.tools"),
        ([added() | {"role": "king"}, HELLO], "input.0.role"),
        ([added() | {"mood": "good"}, HELLO], "input.0.mood"),
    ],
)
def test_errors_in_added_tools_are_named(items: Any, field: str) -> None:
    assert refused(input=items).field == field


def test_items_cannot_add_more_tools_than_a_body_may_have() -> None:
    def many(name: str) -> list[Any]:
        return [WEATHER | {"name": f"{name}{index}"} for index in range(MAX_TOOLS // 2 + 1)]

    assert refused(*many("a"), input=[added(*many("b")), HELLO]).field == "input"


@pytest.mark.parametrize(
    ("namespace", "flat"), [(None, "f"), ("", "f"), ("a__", "a__f"), ("a", "a__f")]
)
def test_the_name_of_a_namespace_is_set_apart(namespace: str | None, flat: str) -> None:
    assert flat_name(namespace, "f") == flat


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("web_search", 'web_search = "disabled"'),
        ("web_search_preview", 'web_search = "disabled"'),
        ("image_generation", "image_generation = false"),
        ("tool_search", "set model to a name of this server"),
        ("local_shell", "set model to a name of this server"),
        ("shell", "pass a function"),
        ("apply_patch", "pass a function"),
        ("mcp", "podium.toml"),
        ("file_search", "expected 'function', 'custom' or 'namespace'"),
        ("code_interpreter", "expected 'function', 'custom' or 'namespace'"),
        ("oven", "expected 'function', 'custom' or 'namespace'"),
    ],
)
def test_a_tool_that_is_not_here_is_refused_with_what_to_do(kind: str, words: str) -> None:
    refusal = refused(WEATHER, {"type": kind})
    assert refusal.field == "tools.1.type"
    assert words in str(refusal)


@pytest.mark.parametrize(
    ("tool", "field"),
    [
        ("weather", "tools.0"),
        ({}, "tools.0.type"),
        ({"type": "function"}, "tools.0.name"),
        ({"type": "function", "name": "a b"}, "tools.0.name"),
        (WEATHER | {"parameters": 7}, "tools.0.parameters"),
        (WEATHER | {"strict": "yes"}, "tools.0.strict"),
        (WEATHER | {"defer_loading": True}, "tools.0.defer_loading"),
        (WEATHER | {"async": True}, "tools.0.async"),
        (WEATHER | {"allowed_callers": ["programmatic"]}, "tools.0.allowed_callers.0"),
        (WEATHER | {"colour": "blue"}, "tools.0.colour"),
        (PATCH | {"format": {"type": "song"}}, "tools.0.format.type"),
        (PATCH | {"format": {"type": "grammar", "syntax": "ebnf"}}, "tools.0.format.syntax"),
        ({"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}, "tools.0.tools.0.type"),
        ({"type": "namespace", "name": "n"}, "tools.0.tools"),
    ],
)
def test_tool_definition_errors_are_named(tool: Any, field: str) -> None:
    assert refused(tool).field == field


def test_two_tools_of_one_name_are_refused() -> None:
    assert refused(WEATHER, WEATHER).field == "tools.1"


def test_too_many_tools_in_namespaces_are_refused() -> None:
    inner = [{"type": "function", "name": f"f{where}"} for where in range(100)]
    groups = [{"type": "namespace", "name": f"n{where}", "tools": inner} for where in range(2)]
    assert refused(*groups).field == "tools"


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_a_choice_in_a_word_is_kept(choice: str) -> None:
    assert response_options(WEATHER, tool_choice=choice).tool_choice == choice


@pytest.mark.parametrize(
    ("choice", "demanded"),
    [
        ({"type": "function", "name": "weather"}, "weather"),
        ({"type": "custom", "name": "patch"}, "patch"),
        (None, ""),
    ],
)
def test_a_tool_may_be_demanded(choice: Any, demanded: str) -> None:
    assert response_options(WEATHER, PATCH, tool_choice=choice).tool_choice == demanded


def test_tools_that_are_not_allowed_are_left_out() -> None:
    allowed = [{"type": "function", "name": "weather"}]
    choice = {"type": "allowed_tools", "mode": "required", "tools": allowed}
    found = response_options(PATCH, WEATHER, tool_choice=choice)
    assert [tool.name for tool in found.tools] == ["weather"]
    assert found.tool_choice == "required"


@pytest.mark.parametrize(
    ("choice", "field"),
    [
        ("any", "tool_choice"),
        (7, "tool_choice"),
        ({}, "tool_choice.type"),
        ({"type": "web_search"}, "tool_choice.type"),
        ({"type": "function"}, "tool_choice.name"),
        ({"type": "function", "name": "oven"}, "tool_choice.name"),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, "tool_choice.tools"),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp"}]},
            "tool_choice.tools.0.type",
        ),
    ],
)
def test_a_choice_that_cannot_be_is_refused(choice: Any, field: str) -> None:
    assert refused(WEATHER, tool_choice=choice).field == field


def test_a_tool_cannot_be_required_where_there_is_none() -> None:
    assert refused(tool_choice="required").field == "tool_choice"


def test_a_tool_named_like_a_choice_cannot_be_demanded() -> None:
    auto = {"type": "function", "name": "auto"}
    assert refused(auto, tool_choice=auto).field == "tool_choice.name"
