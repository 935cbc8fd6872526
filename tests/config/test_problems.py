"""Every mistake that a file can have gets one line: file, key, what was expected, what came."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from podium.config import load
from podium.core.errors import ConfigError

Write = Callable[..., Path]

WORKER = '[[worker]]\nname = "a"\nprovider = "openai"\nmodel = "gpt-5"\n'
SECRET = "sk-proj-0123456789abcdef0123456789abcdef"


def message(write: Write, text: str) -> str:
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    line = str(caught.value)
    assert line.startswith(f"{path}: ")
    assert "\n" not in line
    return line.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[conductr]", "unknown key conductr; did you mean 'conductor'?"),
        ("[conductor]\nkinds = 1", "unknown key conductor.kinds; did you mean 'kind'?"),
        ("[budget]\ndollar = 1", "unknown key budget.dollar; use one of allow_unpriced, calls, "),
        ("[pool]\nmask_name = true", "unknown key pool.mask_name; did you mean 'mask_names'?"),
        ("[retry]\nattempt = 1", "unknown key retry.attempt; did you mean 'attempts'?"),
        ("[store]\npth = 'x'", "unknown key store.pth; did you mean 'path'?"),
        (WORKER + "fall_back = 'b'", "unknown key worker[0].fall_back; did you mean 'fallback'?"),
        (
            WORKER + "limits = { timeout_second = 1 }",
            "unknown key worker[0].limits.timeout_second; did you mean 'timeout_seconds'?",
        ),
        (
            WORKER + "price = { input = 1, output = 1, cache = 1 }",
            "unknown key worker[0].price.cache; did you mean 'cached'?",
        ),
        (
            WORKER + "price = { input = 1, output = 1, long_input = { above_token = 1 } }",
            "unknown key worker[0].price.long_input.above_token; did you mean 'above_tokens'?",
        ),
        (WORKER + WORKER + "nam = 'x'", "unknown key worker[1].nam; did you mean 'name'?"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_valid_one(
    write: Write, text: str, problem: str
) -> None:
    assert message(write, text).startswith(problem)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[budget]\nusd = 'a'", "budget.usd: expected a number, got the text 'a'"),
        ("[budget]\nusd = -1", "budget.usd: expected 0 or more, got -1"),
        ("[budget]\nseconds = 0", "budget.seconds: expected more than 0, got 0"),
        ("[budget]\ncalls = 2.5", "budget.calls: expected a whole number, got 2.5"),
        ("[budget]\ndepth = true", "budget.depth: expected a whole number, got true"),
        ("[budget]\nallow_unpriced = 1", "budget.allow_unpriced: expected true or false, got 1"),
        ("[conductor]\nkind = 'modle'", "conductor.kind: expected one of 'model', 'rules', "),
        ("[conductor]\nmodel = 3", "conductor.model: expected a text, got 3"),
        ("[conductor]\nmodel = ' a'", "conductor.model: expected a text without spaces around it"),
        ("[conductor]\ntemperature = 3", "conductor.temperature: expected 2 or less, got 3"),
        ("conductor = 'model'", "conductor: expected a table, got the text 'model'"),
        ("[worker]\nname = 'a'", "worker: expected tables written [[worker]], got a table"),
        ("[[worker]]\nname = 'a'", "worker[0].provider is missing, and it is required"),
        (WORKER + "price = 3", "worker[0].price: expected a table, got 3"),
        (WORKER + "price = { input = 1 }", "worker[0].price.output is missing, and it is required"),
        (WORKER + "options = []", "worker[0].options: expected a table, got a list of 0"),
        (WORKER + "capabilities = 'tools'", "worker[0].capabilities: expected a list, got the te"),
        (
            WORKER + "capabilities = ['tool']",
            "worker[0].capabilities[0]: expected one of 'vision', 'pdf', 'tools', 'json', "
            "'long_context', 'reasoning', 'sampling' or 'prefill', got the text 'tool'",
        ),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(
    write: Write, text: str, problem: str
) -> None:
    assert message(write, text).startswith(problem)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the pool is empty; name at least one worker"),
        (WORKER + WORKER, "two workers are named 'a'; names must differ"),
        (WORKER + "fallback = 'b'", "worker 'a' falls back to 'b', which is not in the pool"),
        (
            '[[worker]]\nname = "a"\nprovider = "opnai"',
            "worker[0].provider: no provider is called 'opnai'; did you mean 'openai'?",
        ),
        (
            '[[worker]]\nname = "a"\nprovider = "openai-compatible"',
            "worker[0].base_url is missing; 'openai-compatible' needs the server's address",
        ),
        (
            '[conductor]\nmodel = "b"\n' + WORKER,
            "conductor.model: 'b' is neither a worker of this pool nor provider/model",
        ),
        (
            '[conductor]\nfallback = "b"\n' + WORKER,
            "conductor.fallback: 'b' is no worker of this pool that answers by itself; use one of",
        ),
        (
            '[conductor]\nfallback = "deep"\n[[worker]]\nname = "deep"\nprovider = "podium"\n'
            + WORKER,
            "conductor.fallback: 'deep' is no worker of this pool that answers by itself",
        ),
        (
            '[conductor]\nkind = "fixed"\n' + WORKER,
            'conductor.workflow is missing; kind = "fixed" needs one',
        ),
        (
            '[store]\npath = "a"\nurl = "b"\n' + WORKER,
            "store.path and store.url exclude each other; keep one",
        ),
        (
            '[budget]\nusd = 1\n[[worker]]\nname = "a"\nprovider = "openai"\nmodel = "new"',
            "the budget caps money, but no price is known for a; set a price",
        ),
        (
            '[budget]\nusd = 1\n[conductor]\nmodel = "openai/new"\n' + WORKER,
            "the budget caps money, but no price is known for openai/new; set a price",
        ),
    ],
)
def test_conflicting_settings_are_reported(write: Write, text: str, problem: str) -> None:
    assert message(write, text).startswith(problem)


def test_broken_toml_is_named_with_its_line(write: Write) -> None:
    assert message(write, "[budget]\nusd = = 1").endswith("(at line 2, column 7)")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: there is no such file"):
        load(tmp_path / "nowhere.toml")


def test_a_directory_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path)


def test_a_binary_file_is_reported_as_not_text(tmp_path: Path) -> None:
    path = tmp_path / "podium.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="it is not UTF-8 text"):
        load(path)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (WORKER + f'api_key = "{SECRET}"', "worker[0].api_key"),
        (WORKER + f'token = "{SECRET}"', "worker[0].token"),
        (f'api_key = "{SECRET}"\n', "api_key"),
        (WORKER + f'options = {{ api-key = "{SECRET}" }}', "worker[0].options.api-key"),
        (
            WORKER + f'options = {{ extra_headers = {{ Authorization = "{SECRET}" }} }}',
            "worker[0].options.extra_headers.Authorization",
        ),
        (
            WORKER + f'options = {{ servers = [1, {{ password = "{SECRET}" }}] }}',
            "worker[0].options.servers[1].password",
        ),
        (WORKER + f'base_url = "https://me:{SECRET}@example.org"', "worker[0].base_url"),
        (WORKER + f'base_url = "https://{SECRET}@example.org/v1"', "worker[0].base_url"),
    ],
)
def test_a_key_in_the_file_is_refused_and_not_repeated(write: Write, text: str, path: str) -> None:
    problem = message(write, text)
    assert problem.startswith(f"{path}: a key must not be in a file")
    assert "key_env" in problem
    assert SECRET not in problem


@pytest.mark.parametrize("tail", [f"?key={SECRET}", f"#{SECRET}"])
def test_an_address_is_an_address_and_nothing_more(write: Write, tail: str) -> None:
    problem = message(write, WORKER + f'base_url = "https://example.org/v1{tail}"')
    assert problem.startswith("worker[0].base_url: expected an address without ? and #")
    assert SECRET not in problem


@pytest.mark.parametrize(
    "text",
    [
        WORKER + f'key_env = "{SECRET}"',
        WORKER + f'price = "{SECRET}"',
        WORKER + f'capabilities = ["{SECRET}"]',
        f'[conductor]\nkind = "{SECRET}"',
    ],
)
def test_a_key_in_a_wrong_place_is_not_repeated(write: Write, text: str) -> None:
    assert SECRET not in message(write, text)
