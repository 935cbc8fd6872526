from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from podium.errors import ConfigError, NotFound
from podium.run import Run
from podium.store import NullStore, feedback_in
from podium.store.feedback import Feedback
from podium.store.sql import SqlRunStore

GIVEN = Feedback(run_id="run_0123456789abcdef", score=0.5, given_at="2026-01-02T03:04:05.678+00:00")


async def test_the_latest_word_stands(store: SqlRunStore, make_run: Callable[..., Run]) -> None:
    await store.finish(make_run())
    feedback = feedback_in(store)
    assert await feedback.of(GIVEN.run_id) is None
    await feedback.give(GIVEN)
    await feedback.give(replace(GIVEN, score=1.0, comment="Better."))
    await store.finish(make_run())
    assert await feedback.of(GIVEN.run_id) == replace(GIVEN, score=1.0, comment="Better.")


async def test_a_run_that_is_deleted_takes_what_was_thought_of_it_along(
    store: SqlRunStore, make_run: Callable[..., Run]
) -> None:
    await store.finish(make_run())
    await feedback_in(store).give(GIVEN)
    await store.delete(GIVEN.run_id)
    assert await feedback_in(store).of(GIVEN.run_id) is None


async def test_nobody_thinks_anything_of_a_run_that_there_is_not(store: SqlRunStore) -> None:
    with pytest.raises(NotFound):
        await feedback_in(store).give(GIVEN)


def test_without_a_database_there_is_no_place_for_it() -> None:
    with pytest.raises(ConfigError, match="nowhere to keep"):
        feedback_in(NullStore())
