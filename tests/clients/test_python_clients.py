"""Real clients, unmodified, through `podium serve`: each gets what it gets without Podium.

One process of a client and one server serve all its cases.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from clients import environments
from clients.cases import CLIENTS, Case, Client, cases
from clients.harness import command_for, run_client
from clients.verdict import problems
from support.shared_directory import made_once


def python_cases() -> Iterator[Any]:
    for case in cases():
        if case.client.environment != "npm":
            yield pytest.param(case, id=case.id.replace(" ", "-"), marks=pytest.mark.clients)


def results_of(client: Client, factory: pytest.TempPathFactory) -> Any:
    """Return all results of a client, which is run by the process that wants them first."""

    def run(directory: Any) -> None:
        run_client(client, command_for(client), directory)

    directory = made_once(factory, f"client-{client.name}", run)
    return json.loads((directory / "results.json").read_text("utf-8"))


@pytest.mark.parametrize("case", [*python_cases()])
def test_a_client_gets_what_it_gets_without_podium(
    case: Case, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = case.client.environment
    if not environments.is_ready(name):
        if environments.IS_REQUIRED:
            pytest.fail(environments.missing(name))
        pytest.skip(environments.missing(name))
    results = results_of(case.client, tmp_path_factory)
    assert f"{case.scenario} {case.tier}" in results, "the driver ended early: see driver.log"
    assert not (found := problems(case, results)), "; ".join(found)


def test_a_missing_environment_is_loud() -> None:
    absent = {client.environment for client in CLIENTS if client.environment != "npm"}
    absent = {name for name in absent if not environments.is_ready(name)}
    if absent and not environments.IS_REQUIRED:
        pytest.skip("; ".join(map(environments.missing, sorted(absent))))
    assert not absent
