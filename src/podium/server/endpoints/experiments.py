"""Training runs, evaluations and reports below the directories of `experiment_dirs` in `[server]`.

They require the scope `admin` where keys are required.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from podium.core.errors import UnreadableRun
from podium.core.run import load
from podium.server.access import Principal
from podium.server.api_error import ApiError
from podium.server.endpoints.http import PrincipalDep, ServiceDep, encode_json
from podium.server.records.repository import run_details, runs_in, step_details
from podium.server.service import Service
from podium.server.training_runs import (
    Artifact,
    evaluation_document,
    evaluation_summary,
    find_artifact,
    find_directories,
    find_result,
    open_regular_file,
    results_document,
    samples_document,
    training_document,
)
from podium.server.worker_statistics import format_timestamp

router = APIRouter(prefix="/v1/experiments", tags=["experiments"])

MAX_REPORT_BYTES: Final = 64_000_000

SANDBOX_HEADERS: Final = {
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of a report, which is a foreign file: the browser sandboxes it without scripts, network
access or an origin."""

Name = Annotated[str, Path(max_length=300, description="as GET /v1/experiments lists it")]


@router.get("")
async def experiments(service: ServiceDep, principal: PrincipalDep) -> dict[str, Any]:
    """List training runs, evaluations and reports. Requires the scope `admin`."""
    principal.require("admin")
    named = await asyncio.to_thread(find_directories, service.settings.experiment_dirs)
    return {
        "object": "list",
        "data": await asyncio.to_thread(
            lambda: [_entry(artifact) for item in named for artifact in item.artifacts]
        ),
        "directories": [
            {"path": str(item.path), "found": len(item.artifacts), "problem": item.problem or None}
            for item in named
        ],
    }


@router.get("/{name}")
async def artifact(name: Name, service: ServiceDep, principal: PrincipalDep) -> dict[str, Any]:
    """Return a training run with its series, an evaluation with its table, or a report's metadata.
    Requires the scope `admin`."""
    found = await _find(name, service, principal)
    match found.kind:
        case "training":
            return await asyncio.to_thread(training_document, found)
        case "evaluation":
            return await asyncio.to_thread(evaluation_document, found)
        case "report":
            return {"object": "report", **await asyncio.to_thread(_entry, found)}


@router.get("/{name}/samples")
async def samples(
    name: Name,
    service: ServiceDep,
    principal: PrincipalDep,
    step: Annotated[int | None, Query(ge=0, description="defaults to the last step")] = None,
) -> dict[str, Any]:
    """Return samples of a training run: plans of a step, or recitations after it. Requires the
    scope `admin`."""
    found = await _find(name, service, principal)
    if found.kind != "training":
        raise ApiError("not_found", f"{name!r} is not a training run and has no samples")
    return await asyncio.to_thread(samples_document, found, step)


@router.get("/{name}/results")
async def results(name: Name, service: ServiceDep, principal: PrincipalDep) -> dict[str, Any]:
    """Return every sample of an evaluation, without its run. Requires the scope `admin`."""
    return await asyncio.to_thread(results_document, await _evaluation(name, service, principal))


@router.get("/{name}/results/run")
async def result(
    name: Name,
    service: ServiceDep,
    principal: PrincipalDep,
    strategy: Annotated[str, Query(max_length=300)],
    task: Annotated[str, Query(max_length=300)],
    repeat: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    """Return a sample of an evaluation with its run: plans, prompts and replies. Requires the scope
    `admin`."""
    evaluation = await _evaluation(name, service, principal)
    found = await asyncio.to_thread(find_result, evaluation, strategy, task, repeat)
    if found is None:
        raise ApiError("not_found", f"{name!r} has no sample of {strategy!r} for task {task!r}")
    try:
        run = load(found["run"])
    except UnreadableRun as error:
        raise ApiError("not_found", f"the run of this sample cannot be read: {error}") from error
    details = [
        step_details(nested, round_, step, None)
        for nested in runs_in(run)
        for round_ in nested.rounds
        for step in round_.steps
    ]
    owners = [nested.id for nested in runs_in(run) for _ in nested.steps]
    document = {
        **{key: value for key, value in found.items() if key != "run"},
        "run": run_details(run, is_claimed=False),
        "details": [
            {**step, "run_id": run_id} for step, run_id in zip(details, owners, strict=True)
        ],
    }
    return Response(encode_json(document), media_type="application/json")


@router.get("/{name}/report", response_class=Response)
async def report(name: Name, service: ServiceDep, principal: PrincipalDep) -> Response:
    """Return the page that `podium eval report` wrote, in a sandbox. Requires the scope `admin`."""
    found = await _find(name, service, principal)
    page = None if found.report is None else await asyncio.to_thread(_read_report, found)
    if page is None:
        raise ApiError("not_found", f"report not found: {name!r}; podium eval report writes one")
    return Response(page, media_type="text/html; charset=utf-8", headers=SANDBOX_HEADERS)


async def _evaluation(name: str, service: Service, principal: Principal) -> Artifact:
    found = await _find(name, service, principal)
    if found.kind != "evaluation":
        raise ApiError("not_found", f"{name!r} is not an evaluation and has no results")
    return found


async def _find(name: str, service: Service, principal: Principal) -> Artifact:
    principal.require("admin")
    found = await asyncio.to_thread(find_artifact, service.settings.experiment_dirs, name)
    if found is None:
        raise ApiError(
            "not_found", f"not found: {name[:200]!r}; GET /v1/experiments lists what exists"
        )
    return found


def _entry(artifact: Artifact) -> dict[str, Any]:
    path = artifact.report if artifact.kind == "report" and artifact.report else artifact.path
    if artifact.kind == "training" and artifact.metrics.exists():
        path = artifact.metrics
    try:
        modified: float | None = path.lstat().st_mtime
    except OSError:  # deleted meanwhile
        modified = None
    return {
        "name": artifact.name,
        "title": artifact.title,
        "kind": artifact.kind,
        "updated_at": format_timestamp(modified),
        "has_report": artifact.report is not None,
        **(evaluation_summary(artifact) if artifact.kind == "evaluation" else {}),
    }


def _read_report(artifact: Artifact) -> bytes | None:
    assert artifact.report is not None, "called only if there is a report"
    file = open_regular_file(artifact.report)
    if file is None:
        return None
    with file:
        page = file.read(MAX_REPORT_BYTES + 1)
    if len(page) > MAX_REPORT_BYTES:
        raise ApiError("too_large", f"the report is larger than {MAX_REPORT_BYTES // 1_000_000} MB")
    return page
