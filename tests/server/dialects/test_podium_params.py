from __future__ import annotations

from typing import Any

import pytest

from podium.server.api_error import ApiError
from podium.server.dialects.request import PodiumParams, merge_podium_headers, read_podium_params
from support.readers import refusal


def test_the_podium_object_becomes_what_is_requested() -> None:
    value = {
        "budget": {"usd": 0.5, "calls": 3},
        "exclude": ["openai"],
        "max_steps": 2,
        "rounds": 1,
        "workflow": {"steps": []},
        "quality_bias": 0.2,
    }
    assert read_podium_params(value, "podium") == PodiumParams(
        budget={"usd": 0.5, "calls": 3},
        exclude=frozenset({"openai"}),
        max_steps=2,
        rounds=1,
        workflow={"steps": []},
        quality_bias=0.2,
    )


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"budget": {"usd": -1}}, "podium.budget.usd"),
        ({"budget": {"dollars": 1}}, "podium.budget.dollars"),
        ({"budget": {"calls": 1.5}}, "podium.budget.calls"),
        ({"exclude": "openai"}, "podium.exclude"),
        ({"exclude": [1]}, "podium.exclude.0"),
        ({"max_steps": 0}, "podium.max_steps"),
        ({"rounds": "2"}, "podium.rounds"),
        ({"workflow": []}, "podium.workflow"),
        ({"plan": {}}, "podium.plan"),
    ],
)
def test_errors_in_the_podium_object_are_named(value: object, field: str) -> None:
    assert refusal(read_podium_params, value, "podium").field == field


def test_headers_say_what_the_podium_object_says() -> None:
    headers = {
        "x-podium-budget": "usd=0.50, calls=12",
        "x-podium-exclude": "one, two",
        "x-podium-max-steps": "3",
        "x-podium-rounds": "2",
        "x-podium-workflow": '{"steps": []}',
        "x-podium-quality-bias": "0.2",
    }
    assert merge_podium_headers({"model": "podium"}, headers) == {
        "model": "podium",
        "podium": {
            "budget": {"usd": 0.5, "calls": 12},
            "exclude": ["one", "two"],
            "max_steps": 3,
            "rounds": 2,
            "workflow": {"steps": []},
            "quality_bias": 0.2,
        },
    }


def test_a_body_without_such_headers_is_left_as_it_is() -> None:
    body = {"model": "podium"}
    assert merge_podium_headers(body, {"accept": "*/*"}) is body


def test_the_body_and_the_headers_may_each_say_a_part() -> None:
    body: dict[str, Any] = {"podium": {"rounds": 2}}
    both = merge_podium_headers(body, {"x-podium-max-steps": "3"})
    assert both["podium"] == {"rounds": 2, "max_steps": 3}


@pytest.mark.parametrize(
    ("body", "headers", "field"),
    [
        ({"podium": {"rounds": 2}}, {"x-podium-rounds": "3"}, "podium.rounds"),
        ({}, {"x-podium-rounds": "many"}, "podium.rounds"),
        ({}, {"x-podium-budget": "usd"}, "podium.budget"),
        ({}, {"x-podium-workflow": "{"}, "podium.workflow"),
    ],
)
def test_senseless_values_are_refused(
    body: dict[str, Any], headers: dict[str, str], field: str
) -> None:
    with pytest.raises(ApiError) as refused:
        merge_podium_headers(body, headers)
    assert refused.value.field == field


def test_an_invalid_podium_object_is_left_to_the_dialect() -> None:
    body = {"podium": "much"}
    assert merge_podium_headers(body, {"x-podium-rounds": "3"}) is body
