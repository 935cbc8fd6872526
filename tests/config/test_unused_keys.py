"""A key without effect is refused, so that no cap or price is silently ignored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from podium.config import load
from podium.config.schema import KIND_OF_KEY, ConductorKind, ConductorTable
from podium.config.workers import ONLY_OPTIONS, PROVIDERS, UNUSED_KEYS, WorkerTable
from podium.core.errors import ConfigError

Write = Callable[..., Path]

VALUES = {
    "model": '"x"',
    "price": "{ input = 1, output = 1 }",
    "limits": "{ concurrency = 1 }",
    "base_url": '"http://127.0.0.1:1/v1"',
    "key_env": '"HOME"',
    "options": "{ max_steps = 2 }",
    "deployments": '[{ model = "x" }]',
    "temperature": "1.0",
    "prompt": '"compact"',
    "few_shot": "false",
    "overlap": "false",
    "speculate": "true",
    "fallback": '"solver"',
    "workflow": '"plan.json"',
    "coordinator": '"trained"',
}
SOLVER = '[[worker]]\nname = "solver"\nprovider = "openai"\nmodel = "gpt-5"\n'


def problem(write: Write, text: str) -> str:
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("provider", "key"), [(provider, key) for provider, keys in UNUSED_KEYS.items() for key in keys]
)
def test_a_key_that_a_provider_has_no_use_for_is_refused(
    write: Write, provider: str, key: str
) -> None:
    text = f'{SOLVER}[[worker]]\nname = "odd"\nprovider = "{provider}"\n{key} = {VALUES[key]}\n'
    said = problem(write, text)
    assert said.startswith(f'worker[1].{key} has no effect with provider = "{provider}": ')
    assert UNUSED_KEYS[provider][key] in said


@pytest.mark.parametrize("option", ["delay_seconds", "repyl"])
def test_an_option_that_no_script_has_is_refused(write: Write, option: str) -> None:
    text = f"""
    [[worker]]
    name = "a"
    provider = "scripted"
    options = {{ reply = "hi", {option} = 3 }}
    """
    said = problem(write, text)
    assert said.startswith(f"worker[0].options.{option} has no effect")
    assert "reply" in said


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (kind, key)
        for key, wanted in KIND_OF_KEY.items()
        for kind in get_args(ConductorKind)
        if kind != wanted
    ],
)
def test_a_key_of_another_kind_of_conductor_is_refused(write: Write, kind: str, key: str) -> None:
    workflow = 'workflow = "plan.json"\n' if kind == "fixed" else ""
    text = f'[conductor]\nkind = "{kind}"\n{workflow}{key} = {VALUES[key]}\n{SOLVER}'
    said = problem(write, text)
    assert said.startswith(f'conductor.{key} has no effect with kind = "{kind}"; ')
    assert f'kind = "{KIND_OF_KEY[key]}"' in said


def test_worked_examples_for_a_trained_model_are_refused(write: Write) -> None:
    text = f'[conductor]\nprompt = "trained"\nfew_shot = true\n{SOLVER}'
    assert problem(write, text).startswith('conductor.few_shot has no effect with prompt = "tr')


def test_the_tables_name_keys_and_providers_that_there_are() -> None:
    assert {*UNUSED_KEYS, *ONLY_OPTIONS} <= {*PROVIDERS}
    assert {key for keys in UNUSED_KEYS.values() for key in keys} <= {*WorkerTable.model_fields}
    assert {*KIND_OF_KEY} <= {*ConductorTable.model_fields}
