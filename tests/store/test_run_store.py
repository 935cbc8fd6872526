from __future__ import annotations

import asyncio
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event

from podium.core.errors import NotFound, StoreError, UsageError
from podium.core.run import Run, RunStatus, Tier
from podium.store.base import SUMMARY_CHARACTERS, RunFilter, RunStore
from podium.store.sql.run_store import SqlRunStore


def at(second: int) -> str:
    return f"2026-01-02T03:{second // 60:02}:{second % 60:02}.000+00:00"


def holds(directory: Path, words: bytes) -> bool:
    return any(words in file.read_bytes() for file in directory.iterdir())


async def ids(
    store: RunStore, *, limit: int = 20, before: str | None = None, **filters: Any
) -> list[str]:
    found = await store.list(RunFilter(**filters), limit=limit, before=before)
    return [run.id for run in found]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_run_is_given_back_as_it_was(
    runs: st.SearchStrategy[Run],
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.db"

    async def kept(run: Run) -> Run:
        store = await SqlRunStore.open(file)
        try:
            await store.finish(run)
            return await store.load(run.id)
        finally:
            await store.close()

    run = data.draw(runs)
    assert asyncio.run(kept(run)) == run


async def test_a_run_grows_by_what_is_written_of_it(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    whole = make_run(status="running", answer=None)
    planned = replace(whole.rounds[0], steps=())
    await store.begin(replace(whole, rounds=()))
    assert (await store.load(whole.id)).rounds == ()
    await store.save(whole.id, planned)
    assert (await store.load(whole.id)).rounds == (planned,)
    await store.save(whole.id, whole.steps[2])
    await store.save(whole.id, whole.steps[0])
    assert [step.index for step in (await store.load(whole.id)).steps] == [0, 2]
    await store.save(whole.id, whole.steps[1])
    assert await store.load(whole.id) == whole


async def test_every_write_may_be_repeated(store: RunStore, make_run: Callable[..., Run]) -> None:
    run = make_run(status="running", answer=None)
    again = replace(run.steps[0], reply="a better reply")
    for _ in range(2):
        await store.begin(run)
        await store.save(run.id, run.rounds[0])
        await store.save(run.id, again)
    assert [step.reply for step in (await store.load(run.id)).steps] == [
        "a better reply",
        *(step.reply for step in run.steps[1:]),
    ]


async def test_a_resumed_run_keeps_the_steps_it_does_not_bring(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    run = make_run(status="running", answer=None)
    await store.begin(run)
    await store.begin(replace(run, rounds=()))
    assert await store.load(run.id) == run


async def test_a_finished_run_replaces_all_that_was_written_before(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    await store.begin(make_run(steps=3, status="running", answer=None))
    finished = make_run(steps=2)
    await store.finish(finished)
    assert await store.load(finished.id) == finished


async def test_a_step_of_no_run_is_refused(store: RunStore, make_run: Callable[..., Run]) -> None:
    run = make_run()
    with pytest.raises(NotFound, match=run.id):
        await store.save(run.id, run.steps[0])


async def test_a_step_before_its_plan_is_refused(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    run = make_run()
    await store.begin(replace(run, rounds=()))
    with pytest.raises(StoreError, match="before the plan of its round"):
        await store.save(run.id, run.steps[0])


async def test_each_write_moves_the_runs_clock(where: str, make_run: Callable[..., Run]) -> None:
    seconds: Iterator[int] = iter(range(20))
    store = await SqlRunStore.open(where, clock=lambda: at(next(seconds)))
    run = make_run()
    seen = []
    for write in (
        store.begin(replace(run, rounds=())),
        store.save(run.id, run.rounds[0]),
        store.save(run.id, run.steps[0]),
        store.finish(run),
    ):
        await write
        seen.append((await store.list())[0].updated_at)
    await store.close()
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("wanted", ["run_ab12", "ab12", "run_ab", "ab", "last"])
async def test_a_run_is_found_by_the_beginning_of_its_id(
    store: RunStore, make_run: Callable[..., Run], wanted: str
) -> None:
    await store.finish(make_run("run_cd34", created_at=at(0)))
    await store.finish(make_run("run_ab12", created_at=at(1)))
    assert (await store.load(wanted)).id == "run_ab12"


async def test_a_whole_id_is_not_mistaken_for_the_beginning_of_another(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    for run_id in ("run_ab", "run_ab12"):
        await store.finish(make_run(run_id))
    assert (await store.load("ab")).id == "run_ab"


async def test_an_ambiguous_beginning_names_the_candidates(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    for run_id in ("run_ab12", "run_ab34", "run_cd56"):
        await store.finish(make_run(run_id))
    with pytest.raises(UsageError, match="run_ab34, run_ab12; give more of the id") as refused:
        await store.load("ab")
    assert "run_cd56" not in str(refused.value)


async def test_a_long_list_of_candidates_is_cut(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    for number in range(7):
        await store.finish(make_run(f"run_ab{number}"))
    with pytest.raises(UsageError, match="run_ab6, run_ab5, run_ab4, run_ab3, run_ab2, …;"):
        await store.load("ab")


@pytest.mark.parametrize("wanted", ["ff", "run_ff", "%", "_", "\udcff", "RUN_AB"])
async def test_missing_items_are_not_found(
    store: RunStore, make_run: Callable[..., Run], wanted: str
) -> None:
    await store.finish(make_run("run_ab12"))
    with pytest.raises(NotFound, match="podium runs list"):
        await store.load(wanted)


async def test_an_empty_store_has_no_last_run(store: RunStore) -> None:
    with pytest.raises(NotFound, match="no run yet"):
        await store.load("last")


async def test_an_empty_id_is_a_mistake(store: RunStore) -> None:
    with pytest.raises(UsageError, match="name a run"):
        await store.load("")


async def test_runs_are_listed_newest_first(store: RunStore, make_run: Callable[..., Run]) -> None:
    for run_id, second in (("run_a", 1), ("run_c", 3), ("run_b", 2)):
        await store.finish(make_run(run_id, created_at=at(second)))
    assert await ids(store) == ["run_c", "run_b", "run_a"]
    assert await ids(store, limit=2) == ["run_c", "run_b"]


async def test_pages_follow_each_other_even_through_the_same_moment(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    for number in range(7):
        await store.finish(make_run(f"run_{number}", created_at=at(number // 4)))
    pages = [await ids(store, limit=3)]
    for _ in range(2):
        pages.append(await ids(store, limit=3, before=pages[-1][-1]))
    assert pages == [["run_6", "run_5", "run_4"], ["run_3", "run_2", "run_1"], ["run_0"]]
    assert await ids(store, before="run_0") == []


@pytest.mark.parametrize("status", get_args(RunStatus))
async def test_runs_are_listed_by_status(
    store: RunStore, make_run: Callable[..., Run], status: RunStatus
) -> None:
    for item in get_args(RunStatus):
        await store.finish(make_run(f"run_{item}", status=item))
    assert await ids(store, status=status) == [f"run_{status}"]


@pytest.mark.parametrize("wanted", ["ÄGYPTEN", "ägypten", "100% _SO_", "Nil \ud800"])
async def test_a_search_finds_words_in_questions_and_answers(
    store: RunStore, make_run: Callable[..., Run], wanted: str
) -> None:
    said = "Durch Ägypten, 100% _so_, der Nil \ud800."
    await store.finish(make_run("run_a", question=said))
    await store.finish(make_run("run_b", answer=said))
    await store.finish(make_run("run_c", question="100 xsox", answer=None))
    assert await ids(store, text=wanted) == ["run_b", "run_a"]


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ({"limit": 0}, "expected at least 1"),
        ({"status": "done"}, "status 'done'; expected one of running, answered"),
        ({"tier": "nano"}, "tier 'nano'; expected one of mini, podium, ultra"),
        (
            {"since": datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))},
            "out of range in UTC",
        ),
    ],
)
async def test_a_senseless_filter_is_refused(
    store: RunStore, mistake: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        await ids(store, **mistake)


async def test_a_summary_says_what_a_table_needs(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    run = make_run(question="why? " * 1000, answer="because " * 1000)
    await store.finish(run)
    (summary,) = await store.list()
    assert summary.question == run.question[:SUMMARY_CHARACTERS]
    assert summary.answer == (run.answer or "")[:SUMMARY_CHARACTERS]
    assert (summary.status, summary.conductor, summary.tier) == ("answered", "fixed", "ultra")
    assert (summary.cost_usd, summary.total_tokens) == (0.75, 45)
    assert (summary.calls, summary.seconds) == (3, 1.5)
    assert (summary.steps, summary.rounds, summary.workers) == (3, 1, ("solo",))
    assert summary.owner == ""


async def test_a_run_in_progress_is_listed_with_what_it_has_used_so_far(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    whole = make_run(status="running", answer=None)
    await store.begin(replace(whole, rounds=()))
    await store.save(whole.id, replace(whole.rounds[0], steps=()))
    (planned,) = await store.list()
    await store.save(whole.id, whole.steps[0])
    (begun,) = await store.list()
    assert [(item.steps, item.rounds, item.workers) for item in (planned, begun)] == [
        (0, 1, ()),
        (1, 1, ("solo",)),
    ]


def used(run: Run, *workers: str, **changes: Any) -> Run:
    """The run, with the first step asking each of the workers in turn."""
    first, *others = run.steps
    attempts = tuple(replace(first.attempts[0], worker=worker) for worker in workers)
    first = replace(first, worker=workers[0], attempts=attempts, **changes)
    return replace(run, rounds=(replace(run.rounds[0], steps=(first, *others)),))


async def test_runs_are_listed_by_the_workers_that_their_steps_used(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    await store.finish(used(make_run("run_a", steps=1), "amy", 'ben "b"'))
    await store.finish(used(make_run("run_b", steps=1), "cleo", status="skipped"))
    nested = used(make_run("run_n", steps=1), "dora")
    await store.finish(used(make_run("run_c", steps=2), "amy", nested=(nested,)))
    assert await ids(store, worker="amy") == ["run_c", "run_a"]
    assert await ids(store, worker='ben "b"') == ["run_a"]
    assert await ids(store, worker="dora") == ["run_c"]
    assert await ids(store, worker="am") == await ids(store, worker="cleo") == []
    assert [run.workers for run in await store.list()] == [
        ("amy", "dora", "solo"),
        (),
        ("amy", 'ben "b"'),
    ]
    await store.finish(used(make_run("run_a", steps=1), "ed"))
    assert await ids(store, worker="amy") == ["run_c"]


async def test_runs_are_listed_by_tier_cost_and_age(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    tiers: tuple[Tier, ...] = ("mini", "podium", "ultra")
    for n, tier in enumerate(tiers):
        run = make_run(f"run_{n}", steps=n + 1, created_at=at(n))
        await store.finish(replace(run, tier=tier))
    await store.begin(make_run("run_of_unknown_cost", status="running", created_at=at(9)))
    assert await ids(store, tier="podium") == ["run_1"]
    assert await ids(store, cost_from=0.5) == ["run_2", "run_1"]
    assert await ids(store, cost_to=0.5) == ["run_1", "run_0"]
    assert await ids(store, cost_from=0.3, cost_to=0.6, tier="podium", worker="solo") == ["run_1"]
    since = datetime.fromisoformat(at(1))
    assert await ids(store, since=since, until=since) == ["run_1"]
    assert await ids(store, until=since.replace(tzinfo=None)) == ["run_1", "run_0"]
    east = since.astimezone(timezone(timedelta(hours=5)))
    assert await ids(store, since=east, tier="ultra") == ["run_of_unknown_cost", "run_2"]


async def test_a_deleted_run_is_gone(store: RunStore, make_run: Callable[..., Run]) -> None:
    await store.finish(make_run("run_ab12"))
    await store.delete("run_ab12")
    assert await ids(store) == []
    with pytest.raises(NotFound):
        await store.load("run_ab12")
    with pytest.raises(NotFound):
        await store.delete("run_ab12")


async def test_only_a_whole_id_deletes(store: RunStore, make_run: Callable[..., Run]) -> None:
    await store.finish(make_run("run_ab12"))
    for wanted in ("ab12", "run_ab", "last"):
        with pytest.raises(NotFound):
            await store.delete(wanted)
    assert await ids(store) == ["run_ab12"]


async def test_a_deleted_run_leaves_no_words_in_the_file(
    tmp_path: Path, make_run: Callable[..., Run]
) -> None:
    store = await SqlRunStore.open(tmp_path / "podium.db")
    await store.finish(make_run("run_a", reply="the secret word is xylophone " * 500))
    await store.delete("run_a")
    await store.close()
    written = (tmp_path / "podium.db").read_bytes()
    assert b"CREATE TABLE runs" in written
    assert b"xylophone" not in written


async def test_a_deleted_run_leaves_no_words_beside_an_open_file(
    tmp_path: Path, make_run: Callable[..., Run]
) -> None:
    store = await SqlRunStore.open(tmp_path / "podium.db")
    secret = {"reply": "the secret word is xylophone " * 50, "created_at": at(0)}
    await store.finish(make_run("run_a", **secret), make_run("run_b", **secret))
    assert holds(tmp_path, b"xylophone")
    await store.delete("run_a")
    assert await store.delete_before(at(1)) == 1
    assert not holds(tmp_path, b"xylophone")
    await store.close()


async def test_runs_are_deleted_by_age_however_many(
    store: RunStore, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.store.sql.run_store.DELETE_BATCH", 3)
    await store.finish(*(make_run(f"run_{n}", created_at=at(n)) for n in range(9)))
    assert await store.delete_before(at(7)) == 7
    assert await ids(store) == ["run_8", "run_7"]
    assert await store.delete_before(at(7)) == 0


async def test_a_run_that_is_being_performed_is_not_deleted_for_its_age(
    where: str, make_run: Callable[..., Run]
) -> None:
    now = at(0)
    store = await SqlRunStore.open(where, clock=lambda: now)
    running = make_run("run_a", status="running", created_at=at(0))
    await store.begin(running)
    await store.begin(replace(running, id="run_b"))
    now = at(20)
    await store.save("run_b", running.steps[0])
    assert await store.delete_before(at(10)) == 1
    assert await ids(store) == ["run_b"]
    await store.close()


async def test_several_runs_are_finished_at_once_or_not_at_all(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    written = [make_run(f"run_{n}", steps=n + 1) for n in range(3)]
    await store.finish(*written)
    assert [await store.load(run.id) for run in written] == written
    shorter = [replace(make_run(f"run_{n}", steps=1), answer="again") for n in range(3)]
    await store.finish(*shorter)
    assert [await store.load(run.id) for run in written] == shorter
    await store.finish()
    broken = replace(written[1], rounds=(replace(written[1].rounds[0], index=7),))
    with pytest.raises(StoreError):
        await store.finish(written[0], broken)
    assert await store.load("run_0") == shorter[0]


async def test_runs_are_listed_by_owner_as_if_there_were_no_others(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    for n, owner in enumerate(["key_1", "key_2", "", "key_1"]):
        await store.finish(replace(make_run(f"run_a{n}", created_at=at(n)), owner=owner))
    assert await ids(store) == ["run_a3", "run_a2", "run_a1", "run_a0"]
    assert await ids(store, owner="key_1") == ["run_a3", "run_a0"]
    assert await ids(store, owner="") == ["run_a2"]
    assert await ids(store, owner="key_1", before="last") == ["run_a0"]
    assert await ids(store, owner="key_2", before="run_a") == []
    with pytest.raises(NotFound):
        await ids(store, owner="key_1", before="run_a1")
    assert (await store.load("run_a1")).owner == "key_2"


async def test_concurrent_writers_do_not_disturb_each_other(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    written = [make_run(f"run_{number:02}") for number in range(20)]
    await asyncio.gather(*(store.finish(run) for run in written))
    assert [await store.load(run.id) for run in written] == written


async def test_a_cancelled_write_leaves_the_store_usable(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    for _ in range(5):
        write = asyncio.create_task(store.finish(make_run("run_a", reply="long " * 10_000)))
        await asyncio.sleep(0)
        write.cancel()
        with pytest.raises(asyncio.CancelledError):
            await write
    await store.finish(make_run("run_b"))
    assert (await store.load("run_b")).id == "run_b"


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        ({}, "runs_by_age"),
        ({"owner": ""}, "runs_by_owner"),
        ({"worker": "rare"}, "runs_by_age"),
        ({"text": "Rare"}, "runs_by_age"),
        ({"status": "failed", "tier": "ultra", "cost_from": 0.1}, "runs_by_age"),
    ],
)
async def test_a_list_of_five_thousand_runs_is_read_through_the_index(
    many: Path, filters: dict[str, Any], index: str
) -> None:
    statements: list[tuple[str, Any]] = []

    def note(_c: Any, _u: Any, statement: str, parameters: Any, *_: Any) -> None:
        statements.append((statement, parameters))

    store = await SqlRunStore.open(many)
    event.listen(Engine, "before_cursor_execute", note)
    try:
        fastest = min([await _seconds_to_list(store, **filters) for _ in range(5)])
    finally:
        event.remove(Engine, "before_cursor_execute", note)
        await store.close()

    statement, parameters = statements[-2]  # the last one asks for the workers of the page
    connection = sqlite3.connect(many)
    plan = str(connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall())
    connection.close()
    assert re.search(rf"USING (COVERING )?INDEX {index}", plan)
    assert "TEMP B-TREE" not in plan
    assert fastest < 0.1


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory, make_run: Callable[..., Run]) -> Path:
    """A file of 5,000 runs, of which every hundredth failed, is about something rare, and was
    done by a rare worker."""
    file = tmp_path_factory.mktemp("many") / "podium.db"
    ordinary = [make_run(f"run_{n:05}", created_at=at(n % 3600)) for n in range(5000)]
    rare = [
        used(replace(run, status="failed", question="What is rare?"), "rare")
        for run in ordinary[::100]
    ]

    async def write() -> None:
        store = await SqlRunStore.open(file)
        await store.finish(*ordinary)
        await store.finish(*rare)
        await store.close()

    asyncio.run(write())
    return file


async def _seconds_to_list(store: RunStore, **filters: Any) -> float:
    started = time.perf_counter()
    assert len(await store.list(RunFilter(**filters))) == 20
    return time.perf_counter() - started


async def test_a_closed_store_refuses_to_be_used_and_not_to_be_closed(
    tmp_path: Path, make_run: Callable[..., Run]
) -> None:
    store = await SqlRunStore.open(tmp_path / "podium.db")
    run = make_run()
    await store.finish(run)
    await store.close()
    await store.close()
    for call in (
        store.begin(run),
        store.save(run.id, run.rounds[0]),
        store.save(run.id, run.steps[0]),
        store.finish(run),
        store.load(run.id),
        store.list(),
        store.delete(run.id),
        store.delete_before(at(0)),
        store.keys.keys(),
    ):
        with pytest.raises(StoreError, match=r"podium.db is closed; open it again"):
            await call
