"""The runs that a principal may see, stored or running in this process, and their events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import asdict, replace
from typing import Any, Final, NamedTuple

from podium.client.documents import (
    check_document,
    routing_document,
    run_document,
    step_document,
    usage_document,
)
from podium.conductors.plan import workflow_document
from podium.core.errors import UnreadableRun, UsageError
from podium.core.events import (
    Emit,
    Event,
    GuardrailActed,
    RoundDone,
    RoundPlanned,
    RunDone,
    RunStarted,
    StepDelta,
    StepDone,
    StepProgress,
    StepRetried,
    StepStarted,
)
from podium.core.request import Image, Part, Request, Thinking, ToolResult
from podium.core.run import Attempt, Round, Run, StepRecord
from podium.engine import Toolbox
from podium.engine.requests import replay_request
from podium.server.access import Principal
from podium.server.api_error import ApiError
from podium.server.records.audit import AuditRecorder
from podium.server.records.buffered_store import BufferedRunStore
from podium.store import RunFilter

POLL_SECONDS: Final = 1.0
"""The interval for reading a run that another process performs."""

RUN_ABANDONED: Final = "its process ended before it was done; it can be resumed"


class ClientEvent(NamedTuple):
    """An event as a client sees it."""

    name: str
    document: dict[str, Any]

    @property
    def identity(self) -> tuple[object, ...]:
        """Identify an event of a stored run, whose steps are in order of their index."""
        return (self.name, *(self.document.get(key) for key in ("round", "index", "status")))


class ActiveStep(NamedTuple):
    """A running step with its round and run. `step` holds only its worker and prompt."""

    run: Run
    round: Round
    step: StepRecord


class EventBroadcaster:
    """Passes the events of this process's runs on to their watchers."""

    def __init__(self) -> None:
        self.listener: Emit | None = None
        """Receives every event of every run."""
        self._events: dict[str, list[Event]] = {}
        self._watchers: dict[str, list[asyncio.Queue[Event]]] = {}
        self._root_of: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        """Take the next event of any run. Events of nested runs belong to the top run."""
        if self.listener is not None:
            self.listener(event)
        run_id = event.run.id if isinstance(event, RunStarted | RunDone) else event.run_id
        if isinstance(event, RunStarted):
            parent = event.parent
            root = run_id if parent is None else self._root_of.get(parent[0], parent[0])
            self._root_of[run_id] = root
            if parent is None:
                self._events[root] = []
        root = self._root_of.get(run_id, run_id)
        events = self._events.get(root)
        if events is None:
            return
        events.append(event)
        for queue in self._watchers.get(root, ()):
            queue.put_nowait(event)
        if isinstance(event, RunDone):
            del self._root_of[run_id]
            if run_id == root:
                del self._events[root]

    def is_running(self, run_id: str) -> bool:
        return run_id in self._events

    def started_run(self, run_id: str) -> Run | None:
        events = self._events.get(run_id)
        return events[0].run if events and isinstance(events[0], RunStarted) else None

    def active_step(self, run_id: str, round_: int, index: int) -> ActiveStep | None:
        """Return a step that is running in this process, if it is."""
        position = (round_, index)
        run: Run | None = None
        planned: Round | None = None
        step: StepRecord | None = None
        for event in self._events.get(self._root_of.get(run_id, run_id), ()):
            if event.run_id != run_id:
                continue
            match event:
                case RunStarted():
                    run = event.run
                case RoundPlanned(round=known) if known.index == round_:
                    planned = known
                case StepStarted() if (event.round, event.index) == position:
                    step = _started_step(event, planned)
                case StepRetried() if step and (event.round, event.index) == position:
                    step = replace(step, answered_by=event.worker)
                case StepProgress(step=noted) if step and (noted.round, noted.index) == position:
                    step = replace(step, turns=noted.turns)
                case StepDone(step=done) if (done.round, done.index) == position:
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
        """Yield all events of a run, past and future, to its end.

        `load` returns the stored run, `is_claimed` says whether a process performs it; if none
        does, the events end.
        """
        if self.is_running(run_id):
            async for live in self._live(run_id):
                for event in client_events(live):
                    yield event
            return
        sent = set[object]()
        while True:
            is_running = await is_claimed()  # before loading: what it writes at its end is sent too
            run = await load()
            for event in recorded_events(run):
                if event.identity not in sent:
                    sent.add(event.identity)
                    yield event
            if run.status != "running":
                return
            if not is_running:
                yield ClientEvent("run_abandoned", {"run_id": run_id, "error": RUN_ABANDONED})
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _live(self, run_id: str) -> AsyncIterator[Event]:
        queue: asyncio.Queue[Event] = asyncio.Queue()
        for event in self._events[run_id]:
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


def _started_step(event: StepStarted, planned: Round | None) -> StepRecord | None:
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
    """Yield an event as clients see it; some events are internal."""
    run = {"run_id": event.run_id}
    match event:
        case RunStarted(run=started, parent=parent):
            nested = {"parent": {"run_id": parent[0], "step": parent[1]}} if parent else {}
            yield ClientEvent("run_started", {**run, "question": started.question, **nested})
        case RoundPlanned(round=round_):
            yield _planned_event(event.run_id, round_)
        case StepStarted(round=number, index=index, worker=worker):
            position = {"round": number, "index": index, "worker": worker}
            yield ClientEvent("step_started", {**run, **position})
        case StepRetried(round=number, index=index, worker=worker, error=error):
            position = {"round": number, "index": index, "worker": worker}
            yield ClientEvent("step_retried", {**run, **position, "error": error})
        case StepDelta(round=number, index=index, text=text, thinking=thinking):
            position = {"round": number, "index": index}
            yield ClientEvent("step_delta", {**run, **position, "text": text, "thinking": thinking})
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
    """Yield the events of a stored run; a running one has no end yet."""
    yield from client_events(RunStarted(run))
    for round_ in run.rounds:
        if round_.workflow is not None or round_.accepts_answer:
            yield _planned_event(run.id, round_)
        for step in round_.steps:
            yield from client_events(StepDone(run.id, step))
    if run.status != "running":
        yield from client_events(RunDone(run))


def _planned_event(run_id: str, round_: Round) -> ClientEvent:
    workflow = workflow_document(round_.workflow) if round_.workflow is not None else None
    return ClientEvent(
        "round_planned",
        {
            "run_id": run_id,
            "round": round_.index,
            "accepts_answer": round_.accepts_answer,
            "role": round_.role,
            "workflow": workflow,
            "warnings": list(round_.warnings),
            "routing": routing_document(round_),
            "cancelled_steps": [step_document(step) for step in round_.cancelled_steps],
        },
    )


def run_details(run: Run, *, is_claimed: bool) -> dict[str, Any]:
    """Return a run with its plans, calls and status, but without the messages of its steps."""
    document = run_document(run)
    rounds = [
        {**shown, **_plan(round_)}
        for shown, round_ in zip(document["rounds"], run.rounds, strict=True)
    ]
    return {
        **document,
        "created_at": run.created_at,
        "owner": run.owner,
        "max_steps": run.max_steps,
        "max_rounds": run.max_rounds,
        "is_executing": is_claimed,
        "waiting_for": [
            {"id": call.id, "name": call.name, "arguments": call.arguments}
            for call in run.waiting_for
        ],
        "rounds": rounds,
        "steps": [_calls(step) for step in run.steps],
    }


def step_details(
    run: Run, round_: Round, step: StepRecord, toolbox: Toolbox | None
) -> dict[str, Any]:
    """Return a step with the exact request to its worker, and its nested runs."""
    request = replay_request(run, round_, step, toolbox)
    return {
        **_calls(step),
        "request": None if request is None else _request(request),
        "thinking": [part.text for part in step.thinking if part.text],
        "nested": [run_details(nested, is_claimed=False) for nested in step.nested],
    }


def runs_in(run: Run) -> Iterator[Run]:
    """Yield the run and the runs nested in it, at any depth."""
    yield run
    for step in run.steps:
        for nested in step.nested:
            yield from runs_in(nested)


def _plan(round_: Round) -> dict[str, Any]:
    workflow = round_.workflow
    return {
        "workflow": None if workflow is None else workflow_document(workflow),
        "plan_text": round_.plan_text,
        "planning_attempts": [_attempt(attempt) for attempt in round_.planning_attempts],
    }


def _calls(step: StepRecord) -> dict[str, Any]:
    return {
        **step_document(step),
        "answered_by": step.answered_by,
        "finish": step.finish,
        "attempts": [_attempt(attempt) for attempt in step.attempts],
        "nested": [nested.id for nested in step.nested],
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "worker": attempt.worker,
        **usage_document(attempt.usage),
        "cost_usd": attempt.cost_usd,
        "started_ms": attempt.started_ms,
        "finished_ms": attempt.finished_ms,
        "error": attempt.error,
    }


def _request(request: Request) -> dict[str, Any]:
    return {
        "messages": [
            {"role": message.role, "parts": [_part(part) for part in message.parts]}
            for message in request.messages
        ],
        "tools": [{"name": tool.name, "description": tool.description} for tool in request.tools],
        "schema": request.schema,
        "effort": request.effort,
        "temperature": request.temperature,
        "max_tokens": request.max_tokens,
    }


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Image():
            return _image(part)
        case ToolResult():
            images = [_image(image) for image in part.images]
            return {**asdict(replace(part, images=())), "images": images}
        case Thinking():
            return {"kind": part.kind, "text": part.text, "model": part.model}
        case _:
            return asdict(part)


def _image(image: Image) -> dict[str, Any]:
    """Describe an image; an export of the run holds its data."""
    return {
        "kind": image.kind,
        "media_type": image.media_type,
        "url": image.url,
        "bytes": len(image.data) * 3 // 4,
    }


WHOLE_ID: Final = re.compile(r"run_[0-9a-f]{16}")
"""The format of `new_run_id`. The store also accepts prefixes, and an unreadable run does not say
which id matched."""


class RunRepository:
    """Loads, watches and deletes runs for principals."""

    def __init__(self, store: BufferedRunStore, audit: AuditRecorder | None = None) -> None:
        self.store = store
        self.audit = audit or AuditRecorder()
        self.broadcast = EventBroadcaster()
        self.beginning: set[str] = set()
        """Runs of idempotent requests that begin in this process and may not be stored yet."""

    async def run(self, run_id: str, principal: Principal, field: str | None = None) -> Run:
        """Load a run that the principal may see, by its whole id; `field` is where the request
        names it. Reading a run of another key is audited."""
        run = await self._load_allowed(run_id, principal, field)
        await self.audit.record_run_read("run read", principal, run)
        return run

    async def _load_allowed(
        self, run_id: str, principal: Principal, field: str | None = None
    ) -> Run:
        try:
            run = await self.find(run_id)
        except UnreadableRun:
            if not WHOLE_ID.fullmatch(run_id) or not await self._is_theirs(run_id, principal):
                raise _none(run_id, field) from None
            raise
        if run is None or run.id != run_id or not principal.can_see(run.owner):
            raise _none(run_id, field)
        return run

    async def is_claimed(self, run: Run) -> bool:
        """True if a process may be performing the run."""
        if self.broadcast.is_running(run.id):
            return True
        if run.status != "running":
            return False
        return self.store.was_unavailable or await self.store.is_claimed(run.id)

    async def delete(self, run_id: str, principal: Principal) -> None:
        """Delete a run that the principal may see; raises `ApiError` conflict if it is running."""
        try:
            run = await self._load_allowed(run_id, principal)
        except UnreadableRun:  # its id is enough to delete it
            await self.audit.record("run deleted", principal, run_id)
            await self.store.delete(run_id)
            return
        if await self.is_claimed(run):
            raise ApiError("conflict", f"{run.id} is still running; delete it when it has ended")
        await self.audit.record("run deleted", principal, run.id, {"owner": run.owner})
        await self.store.delete(run.id)

    def watch(self, run_id: str, principal: Principal) -> AsyncIterator[ClientEvent]:
        """Yield all events, past and future, of a run that the principal may see."""

        async def load() -> Run:
            return await self.run(run_id, principal)

        async def is_claimed() -> bool:
            return await self.store.is_claimed(run_id)

        return self.broadcast.watch(run_id, load, is_claimed)

    async def find(self, run_id: str) -> Run | None:
        """Return a run of whichever owner, stored or running here; None if there is none."""
        found = await self._on_record(run_id) or self.broadcast.started_run(run_id)
        # A run that ended between the two lookups is stored by now.
        return found or await self._on_record(run_id)

    async def _on_record(self, run_id: str) -> Run | None:
        try:
            return await self.store.load(run_id)
        except UsageError:  # not found, or an ambiguous prefix
            return None

    async def _is_theirs(self, run_id: str, principal: Principal) -> bool:
        """True if the principal may see an unreadable run, which a list continues from."""
        theirs = RunFilter(owner=None if principal.has_scope("admin") else principal.key_id)
        try:
            await self.store.list(theirs, limit=1, before=run_id)
        except UsageError:
            return False
        return True


def _none(run_id: str, field: str | None) -> ApiError:
    return ApiError(
        "not_found",
        f"run not found: {run_id[:80]!r}; it was deleted, not stored, or belongs to another key",
        field=field,
    )
