"""The events of runs, for whoever wants to watch: as they happen in this process, and from the
record where a run has ended or goes on elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from podium.client.documents import check_document, routed_document, run_document, step_document
from podium.conductors.plan import workflow_document
from podium.core.events import (
    Emit,
    Event,
    GuardrailActed,
    Planned,
    RoundDone,
    RunDone,
    RunStarted,
    StepDelta,
    StepDone,
    StepNoted,
    StepRetried,
    StepStarted,
)
from podium.core.run import Round, Run, StepRecord

LOOK_AGAIN_SECONDS: Final = 1.0
"""How often the record of a run that goes on in another process is looked at."""


LOST: Final = "its process ended before it was done; it can be resumed"


class ClientEvent(NamedTuple):
    """An event as a client sees it."""

    name: str
    document: dict[str, Any]

    @property
    def what(self) -> tuple[object, ...]:
        """Tells the events of a run's record apart. Steps stand there in their order, whichever
        of them was done first."""
        return (self.name, *(self.document.get(key) for key in ("round", "index", "status")))


class ActiveStep(NamedTuple):
    """A step that goes on, in its round and its run. Of what it will be on record, `step` has only
    what its worker was sent, and who that is."""

    run: Run
    round: Round
    step: StepRecord


class EventBroadcaster:
    """The runs that go on in this process, and who watches them."""

    def __init__(self) -> None:
        self.listener: Emit | None = None
        """Gets every event of every run, besides those who watch one."""
        self._told: dict[str, list[Event]] = {}
        self._watchers: dict[str, list[asyncio.Queue[Event]]] = {}
        self._root_of: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        """Take the next event of any run. Those of nested runs belong to the run at the root."""
        if self.listener is not None:
            self.listener(event)
        if isinstance(event, RunStarted):
            parent = event.parent
            root = event.run_id if parent is None else self._root_of.get(parent[0], parent[0])
            self._root_of[event.run_id] = root
            if parent is None:
                self._told[root] = []
        root = self._root_of.get(event.run_id, event.run_id)
        told = self._told.get(root)
        if told is None:
            return
        told.append(event)
        for queue in self._watchers.get(root, ()):
            queue.put_nowait(event)
        if isinstance(event, RunDone):
            del self._root_of[event.run_id]
            if event.run_id == root:
                del self._told[root]

    def is_running(self, run_id: str) -> bool:
        """Whether that run goes on in this process."""
        return run_id in self._told

    def started_run(self, run_id: str) -> Run | None:
        """A run that goes on in this process, as it began."""
        told = self._told.get(run_id)
        return told[0].run if told and isinstance(told[0], RunStarted) else None

    def active_step(self, run_id: str, round_: int, index: int) -> ActiveStep | None:
        """A step at which a worker is in this process, None where none is."""
        place = (round_, index)
        run: Run | None = None
        planned: Round | None = None
        step: StepRecord | None = None
        for event in self._told.get(self._root_of.get(run_id, run_id), ()):
            if event.run_id != run_id:
                continue
            match event:
                case RunStarted():
                    run = event.run
                case Planned(round=known) if known.index == round_:
                    planned = known
                case StepStarted() if (event.round, event.index) == place:
                    step = _begun(event, planned)
                case StepRetried() if step and (event.round, event.index) == place:
                    step = replace(step, answered_by=event.worker)
                case StepNoted(step=noted) if step and (noted.round, noted.index) == place:
                    step = replace(step, turns=noted.turns)
                case StepDone(step=done) if (done.round, done.index) == place:
                    step = None
        if run is None or planned is None or step is None:
            return None
        return ActiveStep(run, planned, step)

    async def watch(
        self,
        run_id: str,
        load: Callable[[], Awaitable[Run]],
        is_claimed: Callable[[], Awaitable[bool]],
    ) -> AsyncIterator[ClientEvent]:
        """Everything that has happened and will happen in a run, to its end. `load` gives the run
        as it is on record, `is_claimed` says whether any process is at work on it: where none
        is, that is the end of what there is to tell."""
        if self.is_running(run_id):
            async for event in self._live(run_id):
                for happening in client_events(event):
                    yield happening
            return
        told = set[object]()
        while True:
            goes_on = await is_claimed()  # asked first: what it wrote at its end is told, too
            run = await load()
            for happening in recorded_events(run):
                if happening.what not in told:
                    told.add(happening.what)
                    yield happening
            if run.status != "running":
                return
            if not goes_on:
                yield ClientEvent("run_lost", {"run_id": run_id, "error": LOST})
                return
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def _live(self, run_id: str) -> AsyncIterator[Event]:
        queue: asyncio.Queue[Event] = asyncio.Queue()
        for event in self._told[run_id]:
            queue.put_nowait(event)
        watchers = self._watchers.setdefault(run_id, [])
        watchers.append(queue)
        try:
            while True:
                event = await queue.get()
                yield event
                if isinstance(event, RunDone) and event.run_id == run_id:
                    return
        finally:
            watchers.remove(queue)
            if not watchers:
                self._watchers.pop(run_id, None)


def _begun(event: StepStarted, planned: Round | None) -> StepRecord | None:
    if planned is None or planned.workflow is None:
        return None
    wanted = planned.workflow.steps[event.index]
    return StepRecord(
        event.round,
        event.index,
        wanted.worker,
        wanted.subtask,
        wanted.access,
        "cancelled",
        reply="",
        error=None,
        started_ms=0.0,
        finished_ms=0.0,
        prompt=event.prompt,
        answered_by=event.worker,
    )


def client_events(event: Event) -> Iterator[ClientEvent]:
    """An event as clients see it; some are for the engine alone."""
    run = {"run_id": event.run_id}
    match event:
        case RunStarted(run=started, parent=parent):
            nested = {"parent": {"run_id": parent[0], "step": parent[1]}} if parent else {}
            yield ClientEvent("run_started", {**run, "question": started.question, **nested})
        case Planned(round=round_):
            yield _planned(event.run_id, round_)
        case StepStarted(round=number, index=index, worker=worker):
            place = {"round": number, "index": index, "worker": worker}
            yield ClientEvent("step_started", {**run, **place})
        case StepRetried(round=number, index=index, worker=worker, error=error):
            place = {"round": number, "index": index, "worker": worker}
            yield ClientEvent("step_retried", {**run, **place, "error": error})
        case StepDelta(round=number, index=index, text=text, thinking=thinking):
            place = {"round": number, "index": index}
            yield ClientEvent("step_delta", {**run, **place, "text": text, "thinking": thinking})
        case GuardrailActed(check=check):
            yield ClientEvent("guardrail_acted", {**run, **check_document(check)})
        case StepDone(step=step):
            yield ClientEvent("step_done", {**run, **step_document(step)})
        case RoundDone(round=round_):
            yield ClientEvent("round_done", {**run, "round": round_.index})
        case RunDone(run=ended):
            yield ClientEvent("run_done", run_document(ended))
        case _:
            return


def recorded_events(run: Run) -> Iterator[ClientEvent]:
    """What had happened in a run, from its record; a run that goes on has no end yet."""
    yield from client_events(RunStarted(run))
    for round_ in run.rounds:
        if round_.workflow is not None or round_.accepted:
            yield _planned(run.id, round_)
        for step in round_.steps:
            yield from client_events(StepDone(run.id, step))
    if run.status != "running":
        yield from client_events(RunDone(run))


def _planned(run_id: str, round_: Round) -> ClientEvent:
    workflow = workflow_document(round_.workflow) if round_.workflow is not None else None
    return ClientEvent(
        "planned",
        {
            "run_id": run_id,
            "round": round_.index,
            "accepted": round_.accepted,
            "role": round_.role,
            "workflow": workflow,
            "warnings": list(round_.warnings),
            "routed": routed_document(round_),
        },
    )
