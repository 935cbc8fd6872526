"""The runs that a principal may see: stored ones, and those running in this process."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, replace
from typing import Any, Final

from podium.client.documents import run_document, step_document, usage_document
from podium.conductors.plan import workflow_document
from podium.core.errors import UnreadableRun, UsageError
from podium.core.request import Image, Part, Request, Thinking, ToolResult
from podium.core.run import Attempt, Round, Run, StepRecord
from podium.engine import Toolbox
from podium.engine.requests import replay_request
from podium.server.access import Principal
from podium.server.api_error import ApiError
from podium.server.records.audit import AuditRecorder
from podium.server.records.broadcast import ClientEvent, EventBroadcaster
from podium.server.records.buffered_store import BufferedRunStore
from podium.store import RunFilter


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
