"""OpenAI's Responses API beyond one answer: stored responses and items, and `background`."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query

from podium.server.access import Principal
from podium.server.answers.conversation import parse_response_id
from podium.server.answers.result import StoredResponse, StreamSink, find_failure
from podium.server.api_error import ApiError, invalid
from podium.server.dialects.request import ApiRequest, ApiResponse
from podium.server.dialects.responses import RESPONSES, count_instructions
from podium.server.dialects.responses_input import is_reference
from podium.server.dialects.responses_items import (
    Item,
    Status,
    client_tool_names,
    input_items,
    read_response_id,
    response_of_item,
)
from podium.server.endpoints.http import ClientDisconnected, PrincipalDep, ServiceDep
from podium.server.endpoints.request_handler import RequestHandler
from podium.server.model_catalog import ModelTarget
from podium.server.service import Service

router = APIRouter(prefix="/v1/responses", tags=["responses"])

MAX_LISTED: Final = 100


class ResponsesRequestHandler(RequestHandler):
    """Serves `/v1/responses`."""

    async def read(self, body: dict[str, Any], principal: Principal) -> ApiRequest:
        """Read the body, with stored items in place of references."""
        given = body.get("input")
        if isinstance(given, list) and any(map(is_reference, given)):
            body = {**body, "input": await self._resolve(given, principal)}
        return RESPONSES.read(body)

    async def _resolve(self, given: list[Any], principal: Principal) -> list[Any]:
        stored: dict[str, dict[str, Item]] = {}
        items: list[Any] = []
        for item in given:
            if not is_reference(item):
                items.append(item)
                continue
            id_ = item["id"]
            owner = response_of_item(id_)
            if owner not in stored:
                found = await self.service.responses.find(owner, principal)
                stored[owner] = {} if found is None else _items_of(found)
            if id_ in stored[owner]:
                items.append(stored[owner][id_])
            elif not (stored[owner] and id_.startswith("rs_")):  # progress is not stored
                raise ApiError(
                    "not_found",
                    f"Item with id '{id_[:80]}' not found. Items are not persisted when `store` is "
                    f"set to false. Try again with `store` set to true, or remove this item from "
                    f"your input.",
                    field="input",
                )
        return items

    async def answer(self, request: ApiRequest, principal: Principal, target: ModelTarget) -> None:
        """Answer the request; with `background`, send the id of the response first."""
        if not request.background:
            await super().answer(request, principal, target)
            return
        if target.worker is not None:
            raise invalid(
                "background",
                f"background: true requires a tier, and {target.name!r} is a single worker",
            )
        id_sink = _ResponseIdSink()
        work = asyncio.create_task(self._work(request, principal, target, id_sink))
        try:
            either: set[asyncio.Future[Any]] = {work, id_sink.id}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not id_sink.id.done():
                work.result()  # it was refused
            id_, created = id_sink.id.result(), int(time.time())
            start = ApiResponse(id=id_, model=request.model, created=created)
            self.exchange.response_headers["X-Podium-Run"] = parse_response_id(id_)[0]
            document = RESPONSES.format_unfinished(request, start, "in_progress")
            self.service.responses.background[id_] = work
            await self.exchange.respond_json(200, document)
            await asyncio.wait({work})
            if work.cancelled():
                raise ClientDisconnected
            self._result = work.result()
        finally:
            work.cancel()
            await asyncio.wait({work})
            if id_sink.id.done():
                self.service.responses.background.pop(id_sink.id.result(), None)


class _ResponseIdSink(StreamSink):
    """Takes the response's id alone."""

    def __init__(self) -> None:
        self.id: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def open(self, response_id: str, *, stored: bool) -> None:
        if not self.id.done():
            self.id.set_result(response_id)


def _items_of(found: StoredResponse) -> dict[str, Item]:
    request, answer = found.reconstruct()
    items = RESPONSES.stored_items(request, answer, found.input)
    return {item["id"]: item for item in items}


@router.get("/{id}")
async def response(id: str, service: ServiceDep, principal: PrincipalDep) -> dict[str, Any]:  # noqa: A002
    """Return a stored response: `in_progress`, `failed` with the error, or if interrupted
    `incomplete`, in the background `cancelled`."""
    found = await _find(id, service, principal)
    asked, answer = found.reconstruct()
    if not found.is_last:
        return RESPONSES.format_response(asked, answer)
    if found.run.status == "running":
        return RESPONSES.format_unfinished(asked, answer, "in_progress")
    if found.run.status == "interrupted":
        status: Status = "cancelled" if asked.raw_body.get("background") else "incomplete"
        return RESPONSES.format_unfinished(asked, answer, status)
    failure = find_failure(found.run)
    if failure is not None:
        return RESPONSES.format_unfinished(asked, answer, "failed", failure)
    return RESPONSES.format_response(asked, answer)


@router.post("/{id}/cancel")
async def cancel_response(id: str, service: ServiceDep, principal: PrincipalDep) -> dict[str, Any]:  # noqa: A002
    """Cancel a background response and return it; one that has ended stays as it is."""
    found = await _find(id, service, principal)
    if not found.reconstruct()[0].raw_body.get("background"):
        raise invalid("response_id", "Cannot cancel a synchronous response.")
    work = service.responses.background.get(read_response_id(id))
    if work is not None:
        work.cancel()
        await asyncio.wait({work})
    elif found.is_last and found.run.status == "running":
        message = "another process of this server executes this response; send the request again"
        raise ApiError("conflict", message)
    return await response(id, service, principal)


@router.get("/{id}/input_items")
async def list_input_items(
    id: str,  # noqa: A002
    service: ServiceDep,
    principal: PrincipalDep,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = 20,
    order: Literal["asc", "desc"] = "desc",
    after: Annotated[str | None, Query(max_length=200)] = None,
) -> dict[str, Any]:
    """List the items that a response answers, with those of earlier responses but without the
    instructions. `after` is the last id of the previous page."""
    found = await _find(id, service, principal)
    asked, answer = found.reconstruct()
    messages = found.input[count_instructions(asked.raw_body) :]
    items = input_items(answer.id, messages, client_tool_names(asked.raw_body))
    if order == "desc":
        items.reverse()
    ids = [item["id"] for item in items]
    if after is not None and after not in ids:
        raise invalid("after", f"after: no input item {after[:80]!r} in this response")
    start = ids.index(after) + 1 if after is not None else 0
    page = items[start : start + limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": start + limit < len(items),
    }


@router.delete("/{id}")
async def delete_response(id: str, service: ServiceDep, principal: PrincipalDep) -> dict[str, Any]:  # noqa: A002
    """Delete a response and its run."""
    principal.require("runs:delete")
    run_id, _ = parse_response_id(read_response_id(id))
    try:
        await service.repository.delete(run_id, principal)
    except ApiError as error:
        raise _not_found_error(id) if error.reason == "not_found" else error from None
    return {"id": id, "object": "response", "deleted": True}


async def _find(id_: str, service: Service, principal: Principal) -> StoredResponse:
    principal.require("runs:read")
    found = await service.responses.find(read_response_id(id_), principal)
    if found is None:
        raise _not_found_error(id_)
    return found


def _not_found_error(id_: str) -> ApiError:
    return ApiError("not_found", f"Response with id '{id_[:80]}' not found.", field="response_id")
