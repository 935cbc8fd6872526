"""What is on record of a run, down to the last word: each step with what its worker was sent, and
the whole of it to keep elsewhere."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from podium.core.run import dump
from podium.server.api_error import ApiError
from podium.server.endpoints.auth import Admitted, Serving
from podium.server.endpoints.exchange import written
from podium.server.endpoints.runs import seen
from podium.server.records.repository import runs_in, step_details

router = APIRouter(prefix="/v1/runs", tags=["runs"])

GOES_ON: Final = {"status": "running", "started_ms": None, "finished_ms": None, "answered_by": ""}
"""What nobody knows yet of a step that goes on."""


@router.get("/{run_id}/steps/{round}/{index}")
async def step(
    run_id: str,
    round: int,  # noqa: A002
    index: int,
    service: Serving,
    principal: Admitted,
    nested: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """A step that has ended: exactly the messages that its worker received, its reply, every call,
    and the runs nested in it. `nested` is the id of one of those, for a step of its. Of a step that
    goes on in this process of the server, its `status` is `running`, and just the messages that
    its worker has received are told."""
    run = await seen(run_id, service, principal)
    wanted = next((each for each in runs_in(run) if each.id == (nested or run_id)), None)
    if wanted is None:
        raise ApiError("not_found", f"no run {(nested or '')[:80]!r} is nested in {run_id}")
    toolbox = await service.podium.toolbox()
    going = service.archive.broadcast.active_step(wanted.id, round, index)
    if going is not None:
        return _sent({**step_details(*going, toolbox), **GOES_ON})
    for round_ in wanted.rounds:
        for record in round_.steps:
            if (record.round, record.index) == (round, index):
                return _sent(step_details(wanted, round_, record, toolbox))
    raise ApiError(
        "not_found",
        f"step {index} of round {round} of {wanted.id} is not on record: it was not planned, has "
        f"not begun, or goes on in another process",
    )


@router.get("/{run_id}/export")
async def export(run_id: str, service: Serving, principal: Admitted) -> Response:
    """The whole run, as `podium runs export` writes it: versioned JSON that loads again."""
    run = await seen(run_id, service, principal)
    await service.audit.record_run_read("run exported", principal, run)
    name = f'attachment; filename="{run.id}.json"'
    return _sent(dump(run), {"Content-Disposition": name})


def _sent(document: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    return Response(written(document), media_type="application/json", headers=headers)
