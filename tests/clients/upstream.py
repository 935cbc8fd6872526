"""An upstream that speaks Chat Completions, Responses and Messages, and records every request.

Started as `python tests/clients/upstream.py`: it prints its port as JSON and ends with its standard
input. `POST /recorded` returns the requests since the last call. `/moved/…` is the same API under
another path, so that a control's requests differ from a worker's.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

sys.path.insert(0, str(Path(__file__).parents[1]))

from clients.model import Answer, Call, Conversation, Turn, answer, plan

Document = dict[str, Any]
PLANNER: Final = "planner"
RETRY_AFTER: Final = "1"
EMBEDDING: Final = [0.25, -0.5, 1.0]

RECORDED: Final[list[Document]] = []
_NUMBERS: Final = itertools.count(1)


def text_of(content: Any) -> str:
    """Return the text of a content in any dialect; pictures and documents are named."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(filter(None, map(_text_of_part, content)))


def _text_of_part(part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type", "text")
    if kind == "document":
        source = part.get("source", {})
        return str(source.get("data") or text_of(source.get("content")))
    if kind in ("image_url", "image", "input_image"):
        return "[image]"
    return str(part.get("text") or "")


def from_chat(body: Document) -> Conversation:
    """Read a Chat Completions body."""
    system, turns = [], []
    for message in body["messages"]:
        text = text_of(message.get("content"))
        if message["role"] in ("system", "developer"):
            system.append(text)
            continue
        calls = tuple(
            Call(call["function"]["name"], _sorted(call["function"]["arguments"]), call["id"])
            for call in message.get("tool_calls") or ()
        )
        turns.append(Turn(message["role"], text, calls, message.get("tool_call_id", "")))
    tools = {
        tool["function"]["name"]: tool["function"].get("parameters") or {}
        for tool in body.get("tools") or ()
    }
    schema = None
    match body.get("response_format"):
        case {"type": "json_schema", "json_schema": {"schema": found}}:
            schema = found
        case {"type": "json_object"}:
            schema = {}
    return Conversation(
        "\n".join(system), tuple(turns), tools, _choice(body.get("tool_choice")), schema
    )


def from_responses(body: Document) -> Conversation:
    """Read a Responses body."""
    system, turns = [body.get("instructions") or ""], []
    items = body["input"]
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    for item in items:
        match item.get("type", "message"):
            case "message" if item["role"] in ("system", "developer"):
                system.append(text_of(item["content"]))
            case "message":
                turns.append(Turn(item["role"], text_of(item["content"])))
            case "function_call":
                call = Call(item["name"], _sorted(item["arguments"]), item["call_id"])
                turns.append(Turn("assistant", "", (call,)))
            case "function_call_output":
                turns.append(Turn("tool", text_of(item["output"]), (), item["call_id"]))
            case "item_reference":
                turns.extend(_stored_item(item["id"]))
    if previous := body.get("previous_response_id"):
        turns[:0] = _STORED_TURNS.get(previous, [])
    tools = {
        tool["name"]: tool.get("parameters") or {}
        for tool in body.get("tools") or ()
        if tool["type"] == "function"
    }
    schema = None
    match (body.get("text") or {}).get("format"):
        case {"type": "json_schema", "schema": found}:
            schema = found
        case {"type": "json_object"}:
            schema = {}
    joined = "\n".join(filter(None, system))
    return Conversation(joined, tuple(turns), tools, _choice(body.get("tool_choice")), schema)


def from_messages(body: Document) -> Conversation:
    """Read a Messages body."""
    system = [text_of(body.get("system"))]
    turns: list[Turn] = []
    for message in body["messages"]:
        if message["role"] == "system":
            system.append(text_of(message["content"]))
            continue
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        calls = tuple(
            Call(part["name"], json.dumps(part["input"], sort_keys=True), part["id"])
            for part in parts
            if part["type"] == "tool_use"
        )
        for part in parts:
            if part["type"] == "tool_result":
                result = text_of(part.get("content"))
                turns.append(Turn("tool", result, (), part["tool_use_id"]))
        text = text_of([part for part in parts if part["type"] not in ("tool_result", "tool_use")])
        if text or calls:
            turns.append(Turn(message["role"], text, calls))
    tools = {
        tool["name"]: tool["input_schema"]
        for tool in body.get("tools") or ()
        if "input_schema" in tool
    }
    schema = None
    config = body.get("output_config") or {}
    form = config.get("format") or body.get("output_format")
    if form:
        schema = form.get("schema", {})
    joined = "\n".join(filter(None, system))
    return Conversation(joined, tuple(turns), tools, _choice(body.get("tool_choice")), schema)


def _sorted(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except ValueError:
        return arguments


def _choice(choice: Any) -> str:
    match choice:
        case None | "auto" | {"type": "auto"}:
            return "auto"
        case "none" | {"type": "none"}:
            return "none"
        case "required" | "any" | {"type": "any"}:
            return "required"
        case {"function": {"name": name}} | {"name": name}:
            return str(name)
    return "auto"


_STORED_ITEMS: Final[dict[str, Turn]] = {}
_STORED_TURNS: Final[dict[str, list[Turn]]] = {}


def _stored_item(id_: str) -> Iterable[Turn]:
    return (_STORED_ITEMS[id_],) if id_ in _STORED_ITEMS else ()


def _reply(body: Document, asked: Conversation) -> Answer:
    if body["model"] == PLANNER:
        return Answer(plan("\n".join(turn.text for turn in asked.turns)))
    reply = answer(asked)
    if not reply.calls:
        return reply
    calls = tuple(Call(c.name, c.arguments, f"call_{next(_NUMBERS)}") for c in reply.calls)
    return Answer(reply.text, calls)


def _record(request: Request, body: Document, asked: Conversation | None) -> None:
    RECORDED.append(
        {
            "path": request.url.path,
            "body": body,
            "asked": asked.document() if asked else None,
            "headers": dict(request.headers),
        }
    )


def _error(status: int, *, is_anthropic: bool = False) -> Response:
    kinds = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}
    error = {"type": kinds.get(status, "api_error"), "message": f"scripted failure {status}"}
    body: Document = {"error": error}
    if is_anthropic:
        body = {"type": "error", "error": error}
    else:
        body["error"] |= {"param": None, "code": None}
    headers = {"retry-after": RETRY_AFTER} if status == 429 else {}
    return JSONResponse(body, status, headers)


def _pieces(text: str) -> list[str]:
    words = text.split(" ")
    return [word if i == 0 else f" {word}" for i, word in enumerate(words)]


def _halves(text: str) -> tuple[str, str]:
    middle = len(text) // 2
    return text[:middle], text[middle:]


def _event(document: Document, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(document)}\n\n".encode()


def _stream(events: Iterable[bytes]) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        for event in events:
            yield event
            await asyncio.sleep(0)

    return StreamingResponse(pieces(), media_type="text/event-stream")


USAGE: Final = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


async def chat(request: Request) -> Response:
    """Chat Completions."""
    body = await request.json()
    asked = from_chat(body)
    _record(request, body, asked)
    reply = _reply(body, asked)
    if reply.status != 200:
        return _error(reply.status)
    common = {"id": f"chatcmpl-{next(_NUMBERS)}", "created": 1_700_000_000, "model": body["model"]}
    if body.get("stream"):
        return _stream(_chat_events(body, common, reply))
    message: Document = {"role": "assistant", "content": reply.text or None, "refusal": None}
    finish = "stop"
    if reply.calls:
        finish = "tool_calls"
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in reply.calls
        ]
    choice: Document = {"message": message, "finish_reason": finish, "logprobs": None}
    if body.get("logprobs"):
        token = {"token": reply.text, "logprob": -0.5, "bytes": None, "top_logprobs": []}
        choice["logprobs"] = {"content": [token], "refusal": None}
    choices = [{"index": index, **choice} for index in range(body.get("n") or 1)]
    whole = {**common, "object": "chat.completion", "choices": choices, "usage": USAGE}
    return JSONResponse(whole, headers={"x-request-id": f"req_{next(_NUMBERS)}"})


def _chat_events(body: Document, common: Document, reply: Answer) -> Iterable[bytes]:
    def chunk(delta: Document, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _event({**common, "object": "chat.completion.chunk", "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    for piece in _pieces(reply.text) if reply.text else ():
        yield chunk({"content": piece})
    for index, call in enumerate(reply.calls):
        first, second = _halves(call.arguments)
        function = {"name": call.name, "arguments": first}
        head = {"index": index, "id": call.id, "type": "function", "function": function}
        yield chunk({"tool_calls": [head]})
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": second}}]})
    yield chunk({}, "tool_calls" if reply.calls else "stop")
    if (body.get("stream_options") or {}).get("include_usage"):
        whole = {**common, "object": "chat.completion.chunk", "choices": [], "usage": USAGE}
        yield _event(whole)
    yield b"data: [DONE]\n\n"


async def responses(request: Request) -> Response:
    """Responses."""
    body = await request.json()
    asked = from_responses(body)
    _record(request, body, asked)
    reply = _reply(body, asked)
    if reply.status != 200:
        return _error(reply.status)
    number = next(_NUMBERS)
    output: list[Document] = []
    if reply.text:
        part = {"type": "output_text", "text": reply.text, "annotations": []}
        item = {"id": f"msg_{number}", "type": "message", "role": "assistant"}
        output.append({**item, "status": "completed", "content": [part]})
        _STORED_ITEMS[f"msg_{number}"] = Turn("assistant", reply.text)
    for call in reply.calls:
        id_ = f"fc_{next(_NUMBERS)}"
        item = {"id": id_, "type": "function_call", "call_id": call.id, "name": call.name}
        output.append({**item, "arguments": call.arguments, "status": "completed"})
        _STORED_ITEMS[id_] = Turn("assistant", "", (call,))
    _STORED_TURNS[f"resp_{number}"] = [
        *asked.turns,
        Turn("assistant", reply.text, reply.calls),
    ]
    whole: Document = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": {},
        "model": body["model"],
        "output": output,
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": body.get("previous_response_id"),
        "temperature": 1.0,
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools", []),
        "top_p": 1.0,
        "text": body.get("text") or {"format": {"type": "text"}},
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 15,
        },
    }
    if body.get("stream"):
        return _stream(_responses_events(whole))
    return JSONResponse(whole, headers={"x-request-id": f"req_{number}"})


def _responses_events(whole: Document) -> Iterable[bytes]:
    numbers = itertools.count()

    def event(kind: str, **fields: Any) -> bytes:
        return _event({"type": kind, "sequence_number": next(numbers), **fields}, kind)

    opening = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield event("response.created", response=opening)
    yield event("response.in_progress", response=opening)
    for index, item in enumerate(whole["output"]):
        at = {"item_id": item["id"], "output_index": index}
        if item["type"] == "message":
            empty = {**item, "status": "in_progress", "content": []}
            yield event("response.output_item.added", output_index=index, item=empty)
            part = item["content"][0]
            at["content_index"] = 0
            opened = {**part, "text": ""}
            yield event("response.content_part.added", **at, part=opened)
            for piece in _pieces(part["text"]):
                yield event("response.output_text.delta", **at, delta=piece, logprobs=[])
            yield event("response.output_text.done", **at, text=part["text"], logprobs=[])
            yield event("response.content_part.done", **at, part=part)
        else:
            empty = {**item, "status": "in_progress", "arguments": ""}
            yield event("response.output_item.added", output_index=index, item=empty)
            for piece in _halves(item["arguments"]):
                yield event("response.function_call_arguments.delta", **at, delta=piece)
            name, arguments = item["name"], item["arguments"]
            done = "response.function_call_arguments.done"
            yield event(done, **at, name=name, arguments=arguments)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=whole)


async def messages(request: Request) -> Response:
    """Messages."""
    body = await request.json()
    asked = from_messages(body)
    _record(request, body, asked)
    reply = _reply(body, asked)
    if reply.status != 200:
        return _error(reply.status, is_anthropic=True)
    content: list[Document] = []
    text = reply.text
    last = asked.turns[-1]
    if last.role == "assistant" and text.startswith(last.text):
        text = text[len(last.text) :]
    if text:
        content.append({"type": "text", "text": text})
    content += [
        {
            "type": "tool_use",
            "id": f"toolu_{c.id}",
            "name": c.name,
            "input": json.loads(c.arguments),
        }
        for c in reply.calls
    ]
    whole: Document = {
        "id": f"msg_{next(_NUMBERS)}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": "tool_use" if reply.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }
    if body.get("stream"):
        return _stream(_messages_events(whole))
    return JSONResponse(whole, headers={"request-id": f"req_{next(_NUMBERS)}"})


def _messages_events(whole: Document) -> Iterable[bytes]:
    def event(kind: str, **fields: Any) -> bytes:
        return _event({"type": kind, **fields}, kind)

    opening = {**whole, "content": [], "stop_reason": None}
    yield event("message_start", message=opening)
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            opened = {"type": "text", "text": ""}
            yield event("content_block_start", index=index, content_block=opened)
            for piece in _pieces(block["text"]):
                delta = {"type": "text_delta", "text": piece}
                yield event("content_block_delta", index=index, delta=delta)
        else:
            empty: Document = {**block, "input": {}}
            yield event("content_block_start", index=index, content_block=empty)
            for piece in _halves(json.dumps(block["input"])):
                delta = {"type": "input_json_delta", "partial_json": piece}
                yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    ending: Document = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=ending, usage={"output_tokens": 5})
    yield event("message_stop")


async def count_tokens(request: Request) -> Response:
    """Messages' count of tokens."""
    await request.body()
    return JSONResponse({"input_tokens": 10})


async def embeddings(request: Request) -> Response:
    """Embeddings."""
    body = await request.json()
    _record(request, body, None)
    inputs: Sequence[Any] = [body["input"]] if isinstance(body["input"], str) else body["input"]
    data = [
        {"object": "embedding", "index": index, "embedding": EMBEDDING}
        for index, _ in enumerate(inputs)
    ]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    whole = {"object": "list", "data": data, "model": body["model"], "usage": usage}
    return JSONResponse(whole)


async def models(request: Request) -> Response:
    """The list of models."""
    names = ("alpha", "beta", "claude", "gpt", PLANNER)
    data = [{"id": name, "object": "model", "created": 1, "owned_by": "script"} for name in names]
    return JSONResponse({"object": "list", "data": data})


async def recorded(request: Request) -> Response:
    """Return what was recorded since the last call, and forget it."""
    taken = RECORDED[:]
    RECORDED.clear()
    return JSONResponse(taken)


def application() -> Starlette:
    """Return the upstream."""
    routes: list[Route] = [Route("/recorded", recorded, methods=["POST"])]
    endpoints: Mapping[str, Any] = {
        "/v1/chat/completions": chat,
        "/v1/responses": responses,
        "/v1/messages": messages,
        "/v1/messages/count_tokens": count_tokens,
        "/v1/embeddings": embeddings,
    }
    routes += [Route(path, endpoint, methods=["POST"]) for path, endpoint in endpoints.items()]
    routes.append(Route("/v1/models", models, methods=["GET"]))
    return Starlette(routes=routes)


async def serve() -> None:
    """Listen on a free port, print it, and serve until standard input ends."""
    configuration = uvicorn.Config(
        application(), port=0, log_level="warning", ws="none", timeout_keep_alive=600
    )
    server = uvicorn.Server(configuration)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    sys.stdout.write(json.dumps({"port": port}) + "\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(serve())
