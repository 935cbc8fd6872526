"""The public test double: a worker that answers from a script.

    worker = ScriptedWorker("solver", ["42"])
    worker = ScriptedWorker("echo", lambda request: request.messages[-1].text)
    worker = ScriptedWorker("flaky", [Unavailable("busy"), "42"])

It sends nothing anywhere. Use it to test your own pools, conductors and budgets.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from podium.core.errors import ConfigError, WorkerError
from podium.core.pool import WorkerProfile
from podium.core.request import (
    UNKNOWN_USAGE,
    Delta,
    Price,
    Reply,
    Request,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
)
from podium.workers.endpoints import Endpoint
from podium.workers.http import Http

RESULT: Final = "{result}"
"""The placeholder of the tool's result in a reply."""

_SAMPLES: Final[Mapping[str, Any]] = {
    "string": "text",
    "integer": 1,
    "number": 1.0,
    "boolean": True,
    "array": [],
    "object": {},
}


@dataclass(frozen=True, slots=True)
class ToolScript:
    """Says `reply`; if offered tools, calls one and answers with `tool_reply`."""

    reply: str
    tool_reply: str
    arguments: Mapping[str, Any]

    def __call__(self, request: Request) -> Reply | str:
        results = [part for part in request.messages[-1].parts if isinstance(part, ToolResult)]
        if results:
            text = "; ".join(result.text for result in results)
            return self.tool_reply.replace(RESULT, text)
        if not request.tools or request.tool_choice == "none":
            return self.reply
        tool = next((t for t in request.tools if t.name == request.tool_choice), request.tools[0])
        call = ToolCall(
            id=f"call_{len(request.messages)}",
            name=tool.name,
            arguments=json.dumps(self._sample_arguments(tool), ensure_ascii=False),
        )
        return Reply("", finish="tool", tool_calls=(call,))

    def _sample_arguments(self, tool: Tool) -> dict[str, Any]:
        wanted: Any = tool.parameters.get("properties")
        if not isinstance(wanted, Mapping):
            return {}
        return {
            name: self.arguments.get(name, _sample(schema))
            for name, schema in wanted.items()
            if isinstance(schema, Mapping)
        }


def _sample(schema: Mapping[str, Any]) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0] if kind else None
    return _SAMPLES.get(str(kind), "text")


ScriptLine = str | Reply | WorkerError
"""A text, a whole reply, or an error to raise."""

Script = ScriptLine | Sequence[ScriptLine] | Callable[[Request], ScriptLine]


class ScriptedWorker:
    """Answers from a script. `requests` are the last requests, `calls` counts them.

    Args:
        profile: Its profile, or its name.
        replies: Lines in turn, repeating the last, or a function of the request. A line is a text,
            a reply, or an error to raise.
        description: The line by which a conductor chooses.
        price: US dollars per million tokens.
        usage: What each reply reports; by default words are counted as tokens.
        delay_seconds: Seconds before each reply.
        chunk: Words of each delta of a stream.
        keep_requests: How many requests are kept (None: all).

    """

    def __init__(
        self,
        profile: WorkerProfile | str,
        replies: Script,
        *,
        description: str = "",
        price: Price | None = None,
        usage: Usage | None = None,
        delay_seconds: float = 0.0,
        chunk: int = 1,
        keep_requests: int | None = 1000,
    ) -> None:
        if isinstance(profile, str):
            profile = WorkerProfile(name=profile, provider="scripted", model=profile)
        if description:
            profile = replace(profile, description=description)
        if price is not None:
            profile = replace(profile, price=price)
        self.profile = profile
        self.calls = 0
        self.requests: deque[Request] = deque(maxlen=keep_requests)
        self._script = replies
        self._usage = usage
        self._delay_seconds = delay_seconds
        self._chunk = chunk

    async def reply(self, request: Request) -> Reply:
        line = self._next_line(request)
        if self._delay_seconds:
            await asyncio.sleep(self._delay_seconds)
        if isinstance(line, WorkerError):
            raise line
        return line

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        """Stream the next line, `chunk` words at a time, and the arguments of tools by words."""
        reply = await self.reply(request)
        words = re.findall(r"\s*\S+|\s+$", reply.text)
        for start in range(0, len(words), self._chunk):
            yield Delta("".join(words[start : start + self._chunk]))
        for number, call in enumerate(reply.tool_calls):
            for piece in re.findall(r"\s*\S+|\s+$", call.arguments):
                yield Delta(piece, "tool_call", number, call.id, call.name)
        yield reply

    def _next_line(self, request: Request) -> Reply | WorkerError:
        self.requests.append(request)
        self.calls += 1
        script = self._script
        if callable(script):
            line = script(request)
        elif isinstance(script, str | Reply | WorkerError):
            line = script
        else:
            line = script[min(self.calls, len(script)) - 1]
        if isinstance(line, WorkerError):
            return line
        reply = Reply(line) if isinstance(line, str) else line
        if reply.usage is not UNKNOWN_USAGE:
            return reply
        counted = Usage(_words(request.text), _words(reply.text), 0, 0, 0)
        return replace(reply, usage=self._usage or counted, model=reply.model or self.profile.model)


def scripted_worker(profile: WorkerProfile, endpoint: Endpoint, http: Http) -> ScriptedWorker:
    """Create a scripted worker from a pool file's options `reply` and `tool_reply`."""
    options = endpoint.options
    match options.get("reply"), options.get("tool_reply"), options.get("tool_arguments", {}):
        case str() as line, None, _:
            return ScriptedWorker(profile, line)
        case [str(), *_] as lines, None, _ if all(isinstance(line, str) for line in lines):
            return ScriptedWorker(profile, lines)
        case str() as line, str() as tool_reply, Mapping() as arguments:
            return ScriptedWorker(profile, ToolScript(line, tool_reply, arguments))
        case _:
            raise ConfigError(
                f"worker {profile.name!r} is scripted and needs a script: "
                f'options = {{ reply = "…" }}, or a list of replies; to call tools as well, '
                f'reply = "…" and tool_reply = "…{{result}}…", with tool_arguments = {{ … }}'
            )


def _words(text: str) -> int:
    return len(text.split())
