"""Trainings and evaluations below the directories that `[server] learning` names. They are the
operator's: where keys are asked for, they take one with the scope `admin`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from podium.server.access import Principal
from podium.server.api_error import ApiError
from podium.server.endpoints.auth import PrincipalDep, ServiceDep
from podium.server.service import Service
from podium.server.training_runs.artifacts import (
    Artifact,
    find_artifact,
    find_directories,
    open_regular_file,
)
from podium.server.training_runs.documents import (
    evaluation_document,
    format_timestamp,
    samples_document,
    training_document,
)

router = APIRouter(prefix="/v1/learning", tags=["learning"])

LARGEST_REPORT: Final = 64_000_000

ALONE: Final = {
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""A report is a file that somebody wrote: a browser shows it as a page of no origin, which runs
nothing, asks for nothing and reaches nothing of this server's."""

Name = Annotated[str, Path(max_length=300, description="as GET /v1/learning lists it")]


@router.get("")
async def learning(service: ServiceDep, principal: PrincipalDep) -> dict[str, Any]:
    """The trainings, evaluations and reports that there are. Takes the scope `admin`."""
    principal.require("admin")
    named = await asyncio.to_thread(find_directories, service.settings.learning)
    return {
        "object": "list",
        "data": await asyncio.to_thread(
            lambda: [_listed(exhibit) for each in named for exhibit in each.exhibits]
        ),
        "directories": [
            {"path": str(each.path), "found": len(each.exhibits), "problem": each.problem or None}
            for each in named
        ],
    }


@router.get("/{name}")
async def exhibit(
    name: Name,
    service: ServiceDep,
    principal: PrincipalDep,
    cursor: Annotated[
        str | None, Query(max_length=40, description="as the answer before had it")
    ] = None,
) -> dict[str, Any]:
    """A training with all of its series, an evaluation with its table, or what is known of a
    report. Of a training, `cursor`
    asks for what came since; where the file was written anew meanwhile, `is_anew` is true and all
    of it comes. Takes the scope `admin`."""
    found = await _found(name, service, principal)
    match found.kind:
        case "training":
            return await asyncio.to_thread(training_document, found, cursor)
        case "evaluation":
            return await asyncio.to_thread(evaluation_document, found)
        case "report":
            return {"object": "report", **await asyncio.to_thread(_listed, found)}


@router.get("/{name}/samples")
async def samples(
    name: Name,
    service: ServiceDep,
    principal: PrincipalDep,
    step: Annotated[int | None, Query(ge=0, description="the last one unless said")] = None,
) -> dict[str, Any]:
    """What a training wrote down to look at: plans of a step, or what was recited after it. Takes
    the scope `admin`."""
    found = await _found(name, service, principal)
    if found.kind != "training":
        raise ApiError("not_found", f"{name!r} is no training, and has no samples to look at")
    return await asyncio.to_thread(samples_document, found, step)


@router.get("/{name}/report", response_class=Response)
async def report(name: Name, service: ServiceDep, principal: PrincipalDep) -> Response:
    """The page that `podium eval report` wrote. A browser shows it apart from everything else: it
    runs nothing and reaches nothing. Takes the scope `admin`."""
    found = await _found(name, service, principal)
    page = None if found.report is None else await asyncio.to_thread(_page, found)
    if page is None:
        raise ApiError(
            "not_found", f"there is no report of {name!r}; podium eval report writes one"
        )
    return Response(page, media_type="text/html; charset=utf-8", headers=ALONE)


async def _found(name: str, service: Service, principal: Principal) -> Artifact:
    principal.require("admin")
    found = await asyncio.to_thread(find_artifact, service.settings.learning, name)
    if found is None:
        raise ApiError(
            "not_found", f"nothing is called {name[:200]!r}; GET /v1/learning lists what there is"
        )
    return found


def _listed(exhibit: Artifact) -> dict[str, Any]:
    path = exhibit.report if exhibit.kind == "report" and exhibit.report else exhibit.path
    if exhibit.kind == "training" and exhibit.metrics.exists():
        path = exhibit.metrics
    try:
        modified: float | None = path.lstat().st_mtime
    except OSError:  # it has just gone
        modified = None
    return {
        "name": exhibit.name,
        "title": exhibit.title,
        "kind": exhibit.kind,
        "updated_at": format_timestamp(modified),
        "has_report": exhibit.report is not None,
    }


def _page(exhibit: Artifact) -> bytes | None:
    assert exhibit.report is not None, "asked for only where there is one"
    file = open_regular_file(exhibit.report)
    if file is None:
        return None
    with file:
        page = file.read(LARGEST_REPORT + 1)
    if len(page) > LARGEST_REPORT:
        raise ApiError("too_large", f"the report is larger than {LARGEST_REPORT // 1_000_000} MB")
    return page
