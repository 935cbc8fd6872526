"""Runs to keep, and a store to keep them in.

Every test that wants a place or a store runs twice: on SQLite, and on a real Postgres.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import strategies as st

from podium.core.budget import Budget, Spent
from podium.core.pool import CAPABILITIES, Limits, Pool, WorkerProfile
from podium.core.request import (
    Finish,
    Image,
    Message,
    Price,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from podium.core.run import Attempt, Round, Run, RunStatus, StepRecord, StepStatus, Tier
from podium.core.workflow import Access, Step, Workflow
from podium.store.base import RunStore
from podium.store.sql.run_store import SqlRunStore
from store.shared import Clock, Two
from support.postgres import Postgres


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Run]:
    """A run of one round, whose steps are all done."""

    def make(
        run_id: str = "run_0123456789abcdef",
        *,
        steps: int = 3,
        status: RunStatus = "answered",
        question: str = "Why is the sky blue?",
        answer: str | None = "Scattering.",
        created_at: str = "2026-01-02T03:04:05.678+00:00",
        reply: str = "Because of scattering.",
    ) -> Run:
        workflow = Workflow(tuple(Step("solo", f"Do part {n}", "all") for n in range(steps)))
        records = tuple(
            StepRecord(
                round=0,
                index=index,
                worker="solo",
                subtask=step.subtask,
                access=step.access,
                status="done",
                reply=reply,
                error=None,
                started_ms=1.0,
                finished_ms=2.5,
                attempts=(Attempt("solo", Usage(10, 5, 0, 0, 0), 0.25, 1.0, 2.5),),
                prompt="the prompt",
                answered_by="solo",
            )
            for index, step in enumerate(workflow.steps)
        )
        return Run(
            id=run_id,
            question=question,
            status=status,
            pool=Pool((WorkerProfile(name="solo"),)),
            conductor="fixed",
            created_at=created_at,
            rounds=(Round(0, workflow, records),),
            answer=answer,
            spent=Spent(calls=steps, tokens=15 * steps, usd=0.25 * steps, seconds=1.5),
        )

    return make


@pytest.fixture(params=["sqlite", "postgres"])
async def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the store of a test is: an empty database."""
    if request.param == "sqlite":
        return str(tmp_path / "data" / "podium.db")
    server: Postgres = request.getfixturevalue("postgres")
    return await server.empty()


@pytest.fixture
async def store(where: str) -> AsyncIterator[RunStore]:
    """An empty store."""
    store = await SqlRunStore.open(where)
    yield store
    await store.close()


@pytest.fixture
async def two(where: str) -> AsyncIterator[Two]:
    """The stores of two processes on one database, whose leases are of ten seconds."""
    clock = Clock()
    stores = [await SqlRunStore.open(where, clock=clock, lease_seconds=10) for _ in range(2)]
    yield stores[0], stores[1], clock
    for store in stores:
        await store.close()


@pytest.fixture(scope="session")
def runs() -> st.SearchStrategy[Run]:
    """Any run that can exist, down to words that are not valid Unicode."""
    return _runs(depth=1)


def _is_joined(words: str) -> bool:
    return words.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") == words


_WORDS = st.text(st.characters(), max_size=12).filter(_is_joined)
_SAID = _WORDS.filter(lambda words: bool(words.strip()))
_NAMES = st.text(min_size=1, max_size=8)
_COUNTS = st.none() | st.integers(0, 2**70)
_NUMBERS = st.floats(0, allow_nan=False, allow_infinity=False)
_MONEY = st.none() | st.floats(0, 1e6)
_TIMES = st.sampled_from(["2026-01-02T03:04:05.678+00:00", "2027-11-12T13:14:15.000+00:00"])

_ATTEMPTS = st.lists(
    st.builds(
        Attempt,
        worker=_NAMES,
        usage=st.builds(Usage, _COUNTS, _COUNTS, _COUNTS, _COUNTS, _COUNTS),
        cost_usd=_MONEY,
        started_ms=_NUMBERS,
        finished_ms=_NUMBERS,
        error=st.none() | _WORDS,
    ),
    max_size=2,
).map(tuple)

_MESSAGES = st.lists(
    st.builds(
        Message,
        st.sampled_from(get_args(Role)),
        st.lists(
            st.builds(Text, _WORDS)
            | st.builds(Image, _WORDS, _WORDS, _WORDS)
            | st.builds(ToolCall, _WORDS, _WORDS, _WORDS)
            | st.builds(ToolResult, _WORDS, _WORDS, st.booleans())
            | st.builds(Thinking, _WORDS, _WORDS, _WORDS),
            max_size=3,
        ).map(tuple),
    ),
    max_size=2,
).map(tuple)


@st.composite
def _pools(draw: st.DrawFn) -> Pool:
    names = draw(st.lists(_NAMES, min_size=1, max_size=3, unique=True))
    price = st.builds(Price, input=_NUMBERS, output=_NUMBERS, cached=_MONEY)
    return Pool(
        tuple(
            WorkerProfile(
                name=name,
                description=draw(_WORDS),
                price=draw(
                    st.none()
                    | price
                    | st.builds(Price, input=_NUMBERS, output=_NUMBERS, long_input=price)
                ),
                limits=Limits(concurrency=draw(_COUNTS), timeout_seconds=draw(_NUMBERS)),
                capabilities=draw(st.frozensets(st.sampled_from(CAPABILITIES))),
                fallback=draw(st.sampled_from([None, *(n for n in names if n != name)])),
            )
            for name in names
        ),
        share_question=draw(st.booleans()),
        mask_names=draw(st.booleans()),
    )


def _accesses(index: int) -> st.SearchStrategy[Access]:
    every: st.SearchStrategy[Access] = st.just("all")
    some = st.sets(st.sampled_from(range(index)) if index else st.nothing())
    return every | some.map(lambda reads: tuple(sorted(reads)))


@st.composite
def _rounds(draw: st.DrawFn, index: int, nested: st.SearchStrategy[Run]) -> Round:
    steps = [
        Step(draw(_NAMES), draw(_SAID), draw(_accesses(n))) for n in range(draw(st.integers(0, 3)))
    ]
    ended = [n for n in range(len(steps)) if draw(st.booleans())]
    return Round(
        index,
        Workflow(tuple(steps)) if steps else None,
        tuple(
            StepRecord(
                round=index,
                index=n,
                worker=steps[n].worker,
                subtask=steps[n].subtask,
                access=steps[n].access,
                status=draw(st.sampled_from(get_args(StepStatus))),
                reply=draw(_WORDS),
                error=draw(st.none() | _WORDS),
                started_ms=draw(_NUMBERS),
                finished_ms=draw(_NUMBERS),
                attempts=draw(_ATTEMPTS),
                prompt=draw(_WORDS),
                answered_by=draw(_NAMES),
                finish=draw(st.sampled_from(get_args(Finish))),
                nested=draw(st.tuples() | st.tuples(nested)),
            )
            for n in ended
        ),
        draw(_ATTEMPTS),
        draw(_WORDS),
        draw(st.lists(_WORDS, max_size=2).map(tuple)),
        accepts_answer=draw(st.booleans()),
    )


@st.composite
def _several_rounds(draw: st.DrawFn, depth: int) -> tuple[Round, ...]:
    nested = _runs(depth - 1) if depth else st.nothing()
    return tuple(draw(_rounds(index, nested)) for index in range(draw(st.integers(0, 2))))


def _runs(depth: int) -> st.SearchStrategy[Run]:
    return st.builds(
        Run,
        id=st.integers(0, 2**64 - 1).map(lambda number: f"run_{number:016x}"),
        question=_WORDS,
        status=st.sampled_from(get_args(RunStatus)),
        pool=_pools(),
        conductor=_WORDS,
        created_at=_TIMES,
        rounds=_several_rounds(depth),
        answer=st.none() | _WORDS,
        error=st.none() | _WORDS,
        tier=st.sampled_from(get_args(Tier)),
        budget=st.builds(Budget, calls=_COUNTS, usd=_MONEY, allow_unpriced=st.booleans()),
        spent=st.builds(Spent, st.integers(0, 2**70), st.integers(0, 2**70), _NUMBERS),
        history=_MESSAGES,
        prompt_hash=_WORDS,
    )
