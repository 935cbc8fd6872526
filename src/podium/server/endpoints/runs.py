"""Stored runs: list, show, stream, export, delete and rate them.

A key sees its own runs; with the scope `admin`, or without keys, all runs are visible.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from podium.client.documents import feedback_document, summary_document
from podium.core.run import Run, RunStatus, Tier, dump, timestamp
from podium.server.access import Principal
from podium.server.api_error import ApiError
from podium.server.dialects.fields import bounded_text, number, read_object
from podium.server.endpoints.accounting import key_names
from podium.server.endpoints.http import PrincipalDep, ServiceDep, encode_json, parse_json_object
from podium.server.endpoints.openapi import named_body
from podium.server.records.repository import run_details, runs_in, step_details
from podium.server.service import Service
from podium.store import Feedback, RunFilter, correction_task
from podium.store.audit import AuditAction
from podium.store.base import MAX_ANSWER, MAX_COMMENT

router = APIRouter(prefix="/v1/runs", tags=["runs"])

MAX_LISTED: Final = 100


@router.get("")
async def runs(
    service: ServiceDep,
    principal: PrincipalDep,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = 20,
    before: Annotated[str | None, Query(max_length=100)] = None,
    text: Annotated[str | None, Query(max_length=1000)] = None,
    status: RunStatus | None = None,
    tier: Tier | None = None,
    worker: Annotated[str | None, Query(max_length=200)] = None,
    cost_from: Annotated[float | None, Query(ge=0, allow_inf_nan=False)] = None,
    cost_to: Annotated[float | None, Query(ge=0, allow_inf_nan=False)] = None,
    since: datetime | None = None,
    until: datetime | None = None,
    owner: Annotated[str | None, Query(max_length=100)] = None,
) -> dict[str, Any]:
    """List runs, newest first. `before` is the last id of the previous page. `text` searches
    questions and answers, `worker` is used by any step, costs are in USD, times without a time zone
    are UTC. `owner` is the id of a key, for administrators only."""
    principal.require("runs:read")
    wanted = RunFilter(
        text=text,
        status=status,
        tier=tier,
        worker=worker,
        cost_from=cost_from,
        cost_to=cost_to,
        since=since,
        until=until,
        owner=owner if principal.has_scope("admin") else principal.key_id,
    )
    if owner not in (None, wanted.owner):
        return {"object": "list", "data": [], "has_more": False}
    found = await service.store.list(wanted, limit=limit + 1, before=before)
    if any(item.owner != principal.key_id for item in found):
        await service.audit.record_read("runs listed", principal)
    keyed = any(item.owner for item in found)
    names = await key_names(service, principal) if keyed else {}
    return {
        "object": "list",
        "data": [
            {**summary_document(item), "owner_name": names.get(item.owner)}
            for item in found[:limit]
        ],
        "has_more": len(found) > limit,
    }


@router.get("/{run_id}")
async def run(run_id: str, service: ServiceDep, principal: PrincipalDep) -> Response:
    """Return a run: plans, steps, replies, calls, tokens, cost and feedback."""
    found = await load_run(run_id, service, principal)
    names = await key_names(service, principal) if found.owner else {}
    given = await service.store.feedback_of(found.id)
    document = {
        **run_details(found, is_claimed=await service.repository.is_claimed(found)),
        "owner_name": names.get(found.owner),
        "feedback": None if given is None else feedback_document(given),
    }
    return Response(encode_json(document), media_type="application/json")


@router.get("/{run_id}/events", response_class=StreamingResponse)
async def events(run_id: str, service: ServiceDep, principal: PrincipalDep) -> StreamingResponse:
    """Stream the events of a run from its beginning to its end, as server-sent events."""
    await load_run(run_id, service, principal)
    return StreamingResponse(
        _stream_events(run_id, service, principal), media_type="text/event-stream"
    )


@router.post("/{run_id}/feedback", openapi_extra=named_body("Feedback"))
async def feedback(
    run_id: str, request: Request, service: ServiceDep, principal: PrincipalDep
) -> dict[str, Any]:
    """Rate the answer of a run that has ended. The latest feedback replaces earlier feedback."""
    body = read_object(parse_json_object(await request.body())).reject_unknown(
        ("score", "comment", "answer")
    )
    score = body.required("score", number(0, 1))
    comment = body.optional("comment", bounded_text(most=MAX_COMMENT)) or ""
    answer = body.optional("answer", bounded_text(most=MAX_ANSWER)) or ""
    run = await load_run(run_id, service, principal)
    if run.status in ("running", "waiting"):
        raise ApiError(
            "conflict", f"{run.id} has the status {run.status}; send feedback when it has ended"
        )
    given = Feedback(
        run_id=run.id,
        score=score,
        comment=comment,
        given_at=timestamp(),
        task=correction_task(run.question, answer),
    )
    await _audit_for_other_key("feedback given", run, service, principal)
    await service.store.give_feedback(given)
    return feedback_document(given)


@router.get("/{run_id}/feedback")
async def get_feedback(run_id: str, service: ServiceDep, principal: PrincipalDep) -> dict[str, Any]:
    """Return the feedback on a run."""
    run = await load_run(run_id, service, principal)
    given = await service.store.feedback_of(run.id)
    if given is None:
        raise ApiError("not_found", f"run {run.id} has no feedback")
    return feedback_document(given)


@router.delete("/{run_id}/feedback", status_code=204)
async def withdraw_feedback(run_id: str, service: ServiceDep, principal: PrincipalDep) -> Response:
    """Delete the feedback on a run."""
    run = await load_run(run_id, service, principal)
    if await service.store.feedback_of(run.id) is not None:  # otherwise nothing to audit
        await _audit_for_other_key("feedback withdrawn", run, service, principal)
    await service.store.feedback.delete(run.id)
    return Response(status_code=204)


@router.delete("/{run_id}", status_code=204)
async def delete(run_id: str, service: ServiceDep, principal: PrincipalDep) -> Response:
    """Delete a run with everything that it holds."""
    principal.require("runs:delete")
    await service.repository.delete(run_id, principal)
    return Response(status_code=204)


async def load_run(run_id: str, service: Service, principal: Principal) -> Run:
    principal.require("runs:read")
    return await service.repository.run(run_id, principal)


async def _audit_for_other_key(
    act: AuditAction, run: Run, service: Service, principal: Principal
) -> None:
    """Audit what an administrator does to the feedback on another key's run."""
    if run.owner != principal.key_id:
        await service.audit.record(act, principal, run.id, {"owner": run.owner})


async def _stream_events(
    run_id: str, service: Service, principal: Principal
) -> AsyncIterator[bytes]:
    """Encode events, with comments to keep the connection alive."""
    events = aiter(service.repository.watch(run_id, principal))
    seconds = service.settings.keep_alive_seconds
    upcoming = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            done, _ = await asyncio.wait({upcoming}, timeout=seconds)
            if not done:
                yield b": keep-alive\n\n"
                continue
            try:
                event = upcoming.result()
            except ApiError:  # the run was deleted
                return
            if event is None:
                return
            yield b"event: %s\ndata: %s\n\n" % (event.name.encode(), encode_json(event.document))
            upcoming = asyncio.ensure_future(anext(events, None))
    finally:
        upcoming.cancel()


RUNNING_FIELDS: Final = {
    "status": "running",
    "started_ms": None,
    "finished_ms": None,
    "answered_by": "",
}
"""Fields of a step that is running."""


@router.get("/{run_id}/steps/{round}/{index}")
async def step(
    run_id: str,
    round: int,  # noqa: A002
    index: int,
    service: ServiceDep,
    principal: PrincipalDep,
    nested: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """Return a step: the messages that its worker received, its reply, every call and nested runs.
    `nested` is the id of a nested run to take the step from. A step that runs in this process has
    the status `running` and no reply yet."""
    run = await load_run(run_id, service, principal)
    wanted = next((item for item in runs_in(run) if item.id == (nested or run_id)), None)
    if wanted is None:
        raise ApiError("not_found", f"nested run not found in {run_id}: {(nested or '')[:80]!r}")
    toolbox = (await service.podium.open()).toolbox
    going = service.repository.broadcast.active_step(wanted.id, round, index)
    if going is not None:
        return _json_response({**step_details(*going, toolbox), **RUNNING_FIELDS})
    for round_ in wanted.rounds:
        for record in round_.steps:
            if (record.round, record.index) == (round, index):
                return _json_response(step_details(wanted, round_, record, toolbox))
    raise ApiError(
        "not_found",
        f"step {index} of round {round} not found in {wanted.id}: it was not planned, has not "
        f"started, or runs in another process",
    )


@router.get("/{run_id}/export")
async def export(run_id: str, service: ServiceDep, principal: PrincipalDep) -> Response:
    """Return the whole run as versioned JSON, as `podium runs export` writes it."""
    run = await load_run(run_id, service, principal)
    await service.audit.record_run_read("run exported", principal, run)
    name = f'attachment; filename="{run.id}.json"'
    return _json_response(dump(run), {"Content-Disposition": name})


def _json_response(document: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    return Response(encode_json(document), media_type="application/json", headers=headers)
