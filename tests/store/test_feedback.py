from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from podium.core.errors import ConfigError, NotFound
from podium.core.run import Run
from podium.store import RunStore
from podium.store.base import Feedback
from podium.store.sql.run_store import SqlRunStore

GIVEN = Feedback(run_id="run_0123456789abcdef", score=0.5, given_at="2026-01-02T03:04:05.678+00:00")


async def test_the_latest_word_stands(store: SqlRunStore, make_run: Callable[..., Run]) -> None:
    await store.finish(make_run())
    feedback = store.feedback
    assert await feedback.get(GIVEN.run_id) is None
    await feedback.save(GIVEN)
    await feedback.save(replace(GIVEN, score=1.0, comment="Better."))
    await store.finish(make_run())
    assert await feedback.get(GIVEN.run_id) == replace(GIVEN, score=1.0, comment="Better.")


async def test_a_run_that_is_deleted_takes_what_was_thought_of_it_along(
    store: SqlRunStore, make_run: Callable[..., Run]
) -> None:
    await store.finish(make_run())
    await store.feedback.save(GIVEN)
    await store.delete(GIVEN.run_id)
    assert await store.feedback.get(GIVEN.run_id) is None


async def test_a_grader_is_heard_until_a_person_speaks(
    store: SqlRunStore, make_run: Callable[..., Run]
) -> None:
    await store.finish(make_run())
    feedback = store.feedback
    for score in (0.0, 1.0):
        graded = replace(GIVEN, score=score, grader="exact", task='{"answer": "4"}')
        await feedback.save(graded)
        assert await feedback.get(GIVEN.run_id) == graded
    await feedback.save(GIVEN)
    await feedback.save(graded)
    assert await feedback.get(GIVEN.run_id) == GIVEN


async def test_feedback_can_be_withdrawn_once(
    store: SqlRunStore, make_run: Callable[..., Run]
) -> None:
    await store.finish(make_run())
    feedback = store.feedback
    await feedback.save(GIVEN)
    await feedback.delete(GIVEN.run_id)
    assert await feedback.get(GIVEN.run_id) is None
    with pytest.raises(NotFound, match="has no feedback"):
        await feedback.delete(GIVEN.run_id)


async def test_judgements_come_page_by_page_without_those_of_runs_that_are_only_held(
    store: SqlRunStore, make_run: Callable[..., Run]
) -> None:
    feedback = store.feedback
    ids = [f"run_{number:016x}" for number in range(4)]
    for run_id in ids:
        await store.finish(make_run(run_id))
        await feedback.save(replace(GIVEN, run_id=run_id))
    await store.save_until(make_run(ids[1]), "2999-01-01T00:00:00.000+00:00")
    first = await feedback.page(limit=2)
    second = await feedback.page(first[-1].run_id, limit=2)
    assert [item.run_id for item in (*first, *second)] == [ids[0], ids[2], ids[3]]
    assert not await feedback.page(ids[3])


async def test_feedback_on_an_unknown_run_is_refused(store: SqlRunStore) -> None:
    with pytest.raises(NotFound):
        await store.feedback.save(GIVEN)


def test_without_a_database_there_is_no_place_for_it() -> None:
    with pytest.raises(ConfigError, match="no database for feedback"):
        _ = RunStore().feedback
