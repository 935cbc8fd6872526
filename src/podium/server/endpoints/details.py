"""What is on record of a run, down to the last word: each step with what its worker was sent, and
the whole of it to keep elsewhere."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from podium.run import dump
from podium.server.endpoints.errors import Admitted, Serving
from podium.server.endpoints.exchange import written
from podium.server.endpoints.runs import seen
from podium.server.records.details import runs_in, step_details
from podium.server.refusal import Refusal

router = APIRouter(prefix="/v1/runs", tags=["runs"])


@router.get("/{run_id}/steps/{round}/{index}")
async def step(
    run_id: str,
    round: int,  # noqa: A002
    index: int,
    service: Serving,
    visitor: Admitted,
    nested: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """A step that has ended: exactly the messages that its worker received, its reply, every call,
    and the runs nested in it. `nested` is the id of one of those, for a step of its."""
    run = await seen(run_id, service, visitor)
    wanted = next((each for each in runs_in(run) if each.id == (nested or run_id)), None)
    if wanted is None:
        raise Refusal("not_found", f"no run {(nested or '')[:80]!r} is nested in {run_id}")
    for round_ in wanted.rounds:
        for record in round_.steps:
            if (record.round, record.index) == (round, index):
                toolbox = await service.podium.toolbox()
                return _sent(step_details(wanted, round_, record, toolbox))
    raise Refusal(
        "not_found",
        f"step {index} of round {round} of {wanted.id} is not on record: it was not planned, or "
        f"has not ended yet",
    )


@router.get("/{run_id}/export")
async def export(run_id: str, service: Serving, visitor: Admitted) -> Response:
    """The whole run, as `podium runs export` writes it: versioned JSON that loads again."""
    run = await seen(run_id, service, visitor)
    name = f'attachment; filename="{run.id}.json"'
    return _sent(dump(run), {"Content-Disposition": name})


def _sent(document: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    return Response(written(document), media_type="application/json", headers=headers)
