"""What clients see of errors that only the operator can fix."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from podium.core.errors import ConfigError, StoreError, UsageError
from podium.core.pool import WorkerProfile
from podium.server.api_error import ApiError, to_api_error
from podium.workers import ScriptedWorker
from support.serving import application, serving


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """A server that logs takes its messages from everybody else; here they are to be seen."""
    logger = logging.getLogger("podium")
    before, logger.propagate = logger.propagate, True
    yield
    logger.propagate = before


def convert(error: Exception) -> ApiError:
    return to_api_error(error)


def test_of_a_store_that_fails_a_client_gets_a_sentence_and_the_log_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusal = convert(
        StoreError("cannot use the store /srv/podium.db: the disk is full; free some")
    )
    assert (refusal.status, refusal.retry_after) == (503, 1.0)
    assert "try again later" in str(refusal)
    assert "/srv" not in str(refusal)
    assert "/srv/podium.db: the disk is full" in caplog.text


def test_of_a_configuration_a_client_gets_the_fact_and_the_log_the_remedy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusal = convert(ConfigError("no price is known for 'one'; set budget.allow_unpriced = true"))
    assert (refusal.status, str(refusal)) == (
        400,
        "no price is known for 'one'; only the operator of this server can change that",
    )
    assert "allow_unpriced" in caplog.text


def test_errors_that_a_client_can_fix_are_sent_in_full(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert str(convert(UsageError("two tools are named 'a'; names must differ"))).endswith("differ")
    assert not caplog.text


async def test_a_cap_on_money_over_workers_without_a_price_is_refused_without_a_key_to_set() -> (
    None
):
    async with serving(application([ScriptedWorker(WorkerProfile(name="one"), "yes")])) as served:
        response = await served.ask(podium={"budget": {"usd": 1.0}})
    assert response.status_code == 400
    assert "no price is known for one" in response.text
    assert "allow_unpriced" not in response.text


async def test_excluding_every_worker_is_an_error() -> None:
    async with serving(application([ScriptedWorker("one", "yes")])) as served:
        response = await served.ask(podium={"exclude": ["one"]})
    assert response.status_code == 400
    assert response.json()["message"].endswith("leaves no worker")
