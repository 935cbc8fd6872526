"""The runs on record: list, show, watch and delete them. Everyone sees their own; a key with the
scope `admin`, and everyone where no keys are asked for, sees all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from podium.client.documents import feedback_document, summary_document
from podium.core.run import Run, RunStatus, Tier, timestamp
from podium.server.access import Principal
from podium.server.answers.result import failure_of, retold
from podium.server.api_error import ApiError
from podium.server.dialects.fields import number, opened, text_of
from podium.server.dialects.responses.dialect import RESPONSES
from podium.server.dialects.responses.output import response_id
from podium.server.dialects.responses.output import run_id as run_of
from podium.server.endpoints.auth import Admitted, Serving
from podium.server.endpoints.exchange import parsed, written
from podium.server.endpoints.key_names import key_names
from podium.server.endpoints.openapi import JUDGEMENT, body_of
from podium.server.records.repository import run_details
from podium.server.service import Service
from podium.store import Feedback, RunFilter, correction_task
from podium.store.audit import AuditAction
from podium.store.base import LONGEST_ANSWER, LONGEST_COMMENT

router = APIRouter(prefix="/v1/runs", tags=["runs"])
responses_router = APIRouter(prefix="/v1/responses", tags=["responses"])

MOST_LISTED: Final = 100


@router.get("")
async def runs(
    service: Serving,
    principal: Admitted,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 20,
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
    """The newest runs first. `before` is the id of the last run of the page before. `text` looks
    in questions and answers, `worker` is one that any step used, costs are in dollars, and
    moments without a time zone are meant in UTC. `owner` is the id of a key: for everyone but an
    administrator, their own."""
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
    found = await service.keeper.list(wanted, limit=limit + 1, before=before)
    if any(each.owner != principal.key_id for each in found):
        await service.audit.record_read("runs listed", principal)
    keyed = any(each.owner for each in found)
    names = await key_names(service, principal) if keyed else {}
    return {
        "object": "list",
        "data": [
            {**summary_document(each), "owner_name": names.get(each.owner)}
            for each in found[:limit]
        ],
        "has_more": len(found) > limit,
    }


@router.get("/{run_id}")
async def run(run_id: str, service: Serving, principal: Admitted) -> Response:
    """A run with everything that was done: plans, steps, replies, calls, tokens, cost. What each
    worker was sent is told step by step, and `feedback` is what was thought of its answer."""
    found = await seen(run_id, service, principal)
    names = await key_names(service, principal) if found.owner else {}
    given = await service.keeper.feedback_of(found.id)
    document = {
        **run_details(found, is_claimed=await service.archive.is_claimed(found)),
        "owner_name": names.get(found.owner),
        "feedback": None if given is None else feedback_document(given),
    }
    return Response(written(document), media_type="application/json")


@router.get("/{run_id}/events", response_class=StreamingResponse)
async def events(run_id: str, service: Serving, principal: Admitted) -> StreamingResponse:
    """What happens in a run, as server-sent events: what has happened already first, and then as
    it goes on, to its end."""
    await seen(run_id, service, principal)
    return StreamingResponse(_told(run_id, service, principal), media_type="text/event-stream")


@router.post("/{run_id}/feedback", openapi_extra=body_of(JUDGEMENT))
async def feedback(
    run_id: str, request: Request, service: Serving, principal: Admitted
) -> dict[str, Any]:
    """Say what you think of a run's answer. The latest word stands, and is kept with the run. A
    run that still goes on has no answer to think of yet."""
    said = opened(parsed(await request.body())).only(("score", "comment", "answer"))
    score = said.required("score", number(0, 1))
    comment = said.optional("comment", text_of(most=LONGEST_COMMENT)) or ""
    answer = said.optional("answer", text_of(most=LONGEST_ANSWER)) or ""
    run = await seen(run_id, service, principal)
    if run.status in ("running", "waiting"):
        raise ApiError(
            "conflict", f"{run.id} is {run.status}; say what you think of it when it has ended"
        )
    given = Feedback(
        run_id=run.id,
        score=score,
        comment=comment,
        given_at=timestamp(),
        task=correction_task(run.question, answer),
    )
    await _enter_anothers("feedback given", run, service, principal)
    await service.keeper.give_feedback(given)
    return feedback_document(given)


@router.get("/{run_id}/feedback")
async def given_feedback(run_id: str, service: Serving, principal: Admitted) -> dict[str, Any]:
    """What was thought of a run's answer."""
    run = await seen(run_id, service, principal)
    given = await service.keeper.feedback_of(run.id)
    if given is None:
        raise ApiError("not_found", f"nobody has said what they think of {run.id}")
    return feedback_document(given)


@router.delete("/{run_id}/feedback", status_code=204)
async def withdraw_feedback(run_id: str, service: Serving, principal: Admitted) -> Response:
    """Withdraw what was thought of a run's answer."""
    run = await seen(run_id, service, principal)
    if await service.keeper.feedback_of(run.id) is not None:  # else nothing is done, and it says so
        await _enter_anothers("feedback withdrawn", run, service, principal)
    await service.keeper.withdraw_feedback(run.id)
    return Response(status_code=204)


@router.delete("/{run_id}", status_code=204)
async def delete(run_id: str, service: Serving, principal: Admitted) -> Response:
    """Forget a run and all that it holds."""
    await _forget(run_id, service, principal)
    return Response(status_code=204)


@responses_router.get("/{id}")
async def response(id: str, service: Serving, principal: Admitted) -> dict[str, Any]:  # noqa: A002
    """A response that was given before, from the record of its run: `in_progress` while that goes
    on, `incomplete` where it was cut off, `failed` with the error where nothing came of it."""
    run = await seen(run_of(id, "response_id"), service, principal)
    asked, answer = retold(run)
    if run.status == "running":
        return RESPONSES.unfinished(asked, answer, "in_progress")
    if run.status == "interrupted":
        return RESPONSES.unfinished(asked, answer, "incomplete")
    failure = failure_of(run)
    if failure is not None:
        return RESPONSES.unfinished(asked, answer, "failed", failure)
    return RESPONSES.whole(asked, answer)  # one that waits for tools has told its calls


@responses_router.delete("/{id}")
async def delete_response(id: str, service: Serving, principal: Admitted) -> dict[str, Any]:  # noqa: A002
    """Forget a response, and the run behind it with all that it holds."""
    run_id = run_of(id, "response_id")
    await _forget(run_id, service, principal)
    return {"id": response_id(run_id), "object": "response", "deleted": True}


async def seen(run_id: str, service: Service, principal: Principal) -> Run:
    """A run that the visitor may read."""
    principal.require("runs:read")
    return await service.archive.run(run_id, principal)


async def _enter_anothers(
    action: AuditAction, run: Run, service: Service, principal: Principal
) -> None:
    """Enter what an administrator does to the feedback on a run of somebody else's."""
    if run.owner != principal.key_id:
        await service.audit.record(action, principal, run.id, {"owner": run.owner})


async def _forget(run_id: str, service: Service, principal: Principal) -> None:
    principal.require("runs:delete")
    await service.archive.delete(run_id, principal)


async def _told(run_id: str, service: Service, principal: Principal) -> AsyncIterator[bytes]:
    """The events as bytes, with signs of life where nothing happens for a while."""
    happening = aiter(service.archive.watch(run_id, principal))
    seconds = service.settings.keep_alive_seconds
    upcoming = asyncio.ensure_future(anext(happening, None))
    try:
        while True:
            done, _ = await asyncio.wait({upcoming}, timeout=seconds)
            if not done:
                yield b": alive\n\n"
                continue
            try:
                event = upcoming.result()
            except ApiError:  # it was deleted meanwhile
                return
            if event is None:
                return
            yield b"event: %s\ndata: %s\n\n" % (event.name.encode(), written(event.document))
            upcoming = asyncio.ensure_future(anext(happening, None))
    finally:
        upcoming.cancel()
