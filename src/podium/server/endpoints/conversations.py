"""Conversations of the page Chat: keep, search, share and delete them.

The path is `/v1/chats`, because `/v1/conversations` is another API of OpenAI's. A key sees its own
conversations only. Sharing requires the owner's key; every user of this server who has the link
can read the conversation until the owner revokes it.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from podium.server.api_error import invalid
from podium.server.dialects.fields import array, bounded_text, json_object, read_object
from podium.server.endpoints.http import PrincipalDep, ServiceDep, encode_json, parse_json_object
from podium.server.endpoints.openapi import named_body

router = APIRouter(prefix="/v1/chats", tags=["chats"])

ID: Final = re.compile(r"chat_[0-9a-f]{32}")
MAX_TITLE: Final = 200
MAX_TURNS: Final = 500


@router.get("")
async def chats(
    service: ServiceDep,
    principal: PrincipalDep,
    text: Annotated[str | None, Query(max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 100,
) -> dict[str, Any]:
    """List your conversations, the latest first; `text` searches questions and answers."""
    found = await service.store.chats.list(principal.key_id, text, limit)
    return {"object": "list", "data": found}


@router.put("/{chat_id}", status_code=204, openapi_extra=named_body("Chat"))
async def save(
    chat_id: str, request: Request, service: ServiceDep, principal: PrincipalDep
) -> Response:
    """Keep a conversation under an id of your own, `chat_` and 32 hexadecimal digits."""
    if not ID.fullmatch(chat_id):
        raise invalid("chat_id", "chat_id: expected chat_ and 32 hexadecimal digits")
    body = read_object(parse_json_object(await request.body())).reject_unknown(
        ("title", "turns", "settings")
    )
    title = body.required("title", bounded_text(most=MAX_TITLE))
    turns = body.required("turns", array(json_object, most=MAX_TURNS))
    settings = body.optional("settings", json_object) or {}
    words = "\n".join(text for turn in turns for text in _texts(turn))
    content = {"turns": list(turns), "settings": settings}
    await service.store.chats.save(principal.key_id, chat_id, title, words, content)
    return Response(status_code=204)


@router.get("/{chat_id}")
async def chat(chat_id: str, service: ServiceDep, principal: PrincipalDep) -> Response:
    """Return a conversation."""
    return _respond(await service.store.chats.get(principal.key_id, chat_id))


@router.delete("/{chat_id}", status_code=204)
async def delete(chat_id: str, service: ServiceDep, principal: PrincipalDep) -> Response:
    """Delete a conversation and its link; its runs stay."""
    await service.store.chats.delete(principal.key_id, chat_id)
    return Response(status_code=204)


@router.post("/{chat_id}/share")
async def share(chat_id: str, service: ServiceDep, principal: PrincipalDep) -> Response:
    """Make a link under which others read the conversation; an earlier link ends."""
    return _respond(await service.store.chats.share(principal.key_id, chat_id, is_shared=True))


@router.delete("/{chat_id}/share")
async def revoke(chat_id: str, service: ServiceDep, principal: PrincipalDep) -> Response:
    """Revoke the link."""
    return _respond(await service.store.chats.share(principal.key_id, chat_id, is_shared=False))


@router.get("/shared/{token}")
async def shared_chat(token: str, service: ServiceDep, principal: PrincipalDep) -> Response:
    """Return a conversation that its owner has shared."""
    return _respond({**await service.store.chats.get_shared(token), "id": None})


def _texts(turn: dict[str, Any]) -> list[str]:
    """Return the question and the answers of a turn, for search."""
    versions = turn.get("versions")
    answers = versions if isinstance(versions, list) else []
    texts = [turn.get("question"), *(v.get("text") for v in answers if isinstance(v, dict))]
    return [text for text in texts if isinstance(text, str)]


def _respond(row: dict[str, Any]) -> Response:
    document = {**row, **row["document"], "object": "chat"}
    del document["document"]
    return Response(encode_json(document), media_type="application/json")
