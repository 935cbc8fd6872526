"""Podium as tools of other programs: ask and plan, for MCP clients."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, get_args

from podium._version import __version__
from podium.client.client import AsyncPodium
from podium.client.documents import plan_document
from podium.client.runtime import RunOptions
from podium.core.errors import PodiumError, UsageError
from podium.core.events import Event, Planned, StepDone, StepStarted
from podium.core.run import Round, Run, Tier
from podium.core.structured_output import misfit
from podium.engine.runner import Options
from podium.workers.mcp.rpc import (
    CANCELLED,
    EXCLUDED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LARGEST_MESSAGE,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    VERSIONS,
    answer,
    error,
    notification,
)
from podium.workers.wire import Document, Malformed, member, parse, text, write

Progress = Callable[[str], None]
"""Gets a line on what is being done."""

_QUESTION: Final = {"type": "string", "minLength": 1, "description": "the whole question"}
_TIER: Final = {
    "type": "string",
    "enum": list(get_args(Tier)),
    "description": "how much conducting: mini asks one model, ultra plans several steps, podium "
    "chooses between them",
}
_MAX_STEPS: Final = {
    "type": "integer",
    "minimum": 1,
    "maximum": 100,
    "description": "the most steps that a plan may have; it can only lower what is set already",
}
_ROUNDS: Final = {
    "type": "integer",
    "minimum": 1,
    "maximum": 100,
    "description": "how often the conductor may plan, having seen the answer so far; it can only "
    "lower what is set already",
}
_QUALITY_BIAS: Final = {
    "type": "number",
    "minimum": 0,
    "maximum": 1,
    "description": "how much quality counts over cost where a learned router chooses, from 0, the "
    "cheapest, to 1, the best; for the tiers mini and podium",
}
_USD: Final = {
    "type": "number",
    "minimum": 0,
    "description": "the most that this may cost, in US dollars; it can only lower the cap that is "
    "set already",
}


def _form(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"question": _QUESTION, **properties},
        "required": ["question"],
        "additionalProperties": False,
    }


OFFERED: Final[tuple[Document, ...]] = (
    {
        "name": "ask",
        "title": "Ask a pool of models",
        "description": "Answers a question with several language models, led by a conductor that "
        "plans who does what. Worth its time and cost for questions that are hard or that another "
        "opinion should check. It sees nothing but the question: put into it what it needs.",
        "inputSchema": _form(
            tier=_TIER,
            max_steps=_MAX_STEPS,
            rounds=_ROUNDS,
            quality_bias=_QUALITY_BIAS,
            budget_usd=_USD,
        ),
        "outputSchema": {
            "type": "object",
            "properties": {
                "run_id": {"type": "string", "description": "for podium runs show"},
                "status": {"type": "string"},
                "answer": {"type": ["string", "null"]},
                "error": {"type": ["string", "null"]},
                "workers": {"type": "array", "items": {"type": "string"}},
                "total_tokens": {"type": ["integer", "null"]},
                "cost_usd": {"type": ["number", "null"], "description": "null: not known"},
            },
            "required": ["run_id", "status", "answer"],
        },
        "annotations": {"openWorldHint": True, "destructiveHint": False},
    },
    {
        "name": "plan",
        "title": "Plan without carrying anything out",
        "description": "Says which models would be asked what for a question, and who would read "
        "whose result. Only the plan is made: no step of it is carried out.",
        "inputSchema": _form(
            tier=_TIER, max_steps=_MAX_STEPS, quality_bias=_QUALITY_BIAS, budget_usd=_USD
        ),
        "annotations": {"readOnlyHint": True, "openWorldHint": True},
    },
)

_FORMS: Final = {tool["name"]: tool["inputSchema"] for tool in OFFERED}


async def carry_out(
    podium: AsyncPodium,
    usual: RunOptions,
    tool: str,
    arguments: Mapping[str, Any],
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The result of one of the tools, errors among them. `usual` are the wishes of whoever
    started the server; its limits and its budget are the most that there is."""
    problem = misfit(json.dumps(arguments), _FORMS[tool])
    if problem is not None:
        return _failed(f"the arguments do not fit: {problem}")
    question = arguments["question"]
    try:
        wishes = _wishes(usual, await podium.options(), arguments)
        if tool == "plan":
            return _plan_result(question, await podium.plan(question, **wishes))
        if progress is not None:
            wishes["emit"] = _telling(progress)
        return _run_result(await podium.ask(question, **wishes))
    except PodiumError as error:
        return _failed(str(error))


def _wishes(usual: RunOptions, options: Options, arguments: Mapping[str, Any]) -> RunOptions:
    wishes = usual.copy()
    if "tier" in arguments:
        wishes["tier"] = arguments["tier"]
    if "quality_bias" in arguments:
        wishes["quality_bias"] = arguments["quality_bias"]
    most = replace(
        options,
        max_steps=usual.get("max_steps", options.max_steps),
        rounds=usual.get("rounds", options.rounds),
        budget=usual.get("budget", options.budget),
    )
    allowed = most.narrowed(
        max_steps=arguments.get("max_steps"),
        rounds=arguments.get("rounds"),
        caps={"usd": arguments.get("budget_usd")},
    )
    wishes["max_steps"], wishes["rounds"] = allowed.max_steps, allowed.rounds
    wishes["budget"] = allowed.budget
    return wishes


def _telling(progress: Progress) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        match event:
            case Planned(round=round_) if round_.workflow is not None:
                workers = ", ".join(dict.fromkeys(step.worker for step in round_.workflow.steps))
                count = len(round_.workflow)
                progress(f"Planned {'one step' if count == 1 else f'{count} steps'} for {workers}.")
            case StepStarted(index=index, worker=worker):
                progress(f"Step {index + 1}: {worker} is asked.")
            case StepDone(step=step):
                progress(f"Step {step.index + 1}: {step.status}.")

    return tell


def _run_result(run: Run) -> dict[str, Any]:
    said = run.answer if run.answer is not None else f"{run.status}: {run.error}"
    return {
        "content": [_text(said)],
        "structuredContent": {
            "run_id": run.id,
            "status": run.status,
            "answer": run.answer,
            "error": run.error,
            "workers": list(dict.fromkeys(step.answered_by or step.worker for step in run.steps)),
            "total_tokens": run.usage.total_tokens,
            "cost_usd": run.cost_usd,
        },
        "isError": run.answer is None,
    }


def _plan_result(question: str, planned: Round) -> dict[str, Any]:
    document = plan_document(question, planned)
    lines = [
        f"{index} {step['worker']}: {step['subtask']} (reads {_reads(step['access'])})"
        for index, step in enumerate(document["steps"])
    ]
    return {
        "content": [_text("\n".join(lines))],
        "structuredContent": document,
        "isError": False,
    }


def _reads(access: str | list[int]) -> str:
    if access == "all":
        return "all before it"
    return ", ".join(map(str, access)) if access else "nothing"


def _failed(problem: str) -> dict[str, Any]:
    return {"content": [_text(problem)], "isError": True}


def _text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


log = logging.getLogger("podium")

MOST_AT_ONCE: Final = 32
"""Requests that are carried out at the same time; more are refused."""

BUSY: Final = -32000

INSTRUCTIONS: Final = (
    "Podium answers questions with several language models. Use ask for an answer, plan to see "
    "beforehand who would do what."
)


class Refused(Exception):
    """A request that cannot be carried out; the client is told the code and the reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class McpServer:
    """Serves one client. `usual` are the wishes of every run."""

    def __init__(
        self,
        podium: AsyncPodium,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        usual: RunOptions | None = None,
    ) -> None:
        self._podium = podium
        self._reader = reader
        self._writer = writer
        self._usual = RunOptions() if usual is None else usual
        self._going_on: dict[str | int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Answer until the client goes away; what is going on then is stopped."""
        try:
            while line := await self._next_line():
                if line.strip():
                    await self._take(line)
        except ConnectionError:
            return  # nobody reads what would be said
        finally:
            tasks = tuple(self._going_on.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _next_line(self) -> bytes:
        """The next line; nothing at the end. One that is too long is answered and passed over."""
        while True:
            try:
                return await self._reader.readline()
            except ValueError:
                problem = f"a message has at most {LARGEST_MESSAGE // 1024**2} MiB"
                await self._say(error(None, PARSE_ERROR, problem))

    async def _take(self, line: bytes) -> None:
        try:
            message = parse(line)
        except (Malformed, UnicodeDecodeError) as problem:
            await self._say(error(None, PARSE_ERROR, str(problem)))
            return
        method, number = message.get("method"), message.get("id")
        if not isinstance(method, str) or isinstance(number, bool):
            if "result" not in message and "error" not in message:
                await self._say(error(None, INVALID_REQUEST, "expected a method and an id"))
        elif number is None:
            if method == CANCELLED:
                self._cancel(message)
        elif not isinstance(number, str | int):
            await self._say(error(None, INVALID_REQUEST, "expected a text or a number as id"))
        elif number in self._going_on:
            await self._say(error(number, INVALID_REQUEST, "another request has this id"))
        elif len(self._going_on) >= MOST_AT_ONCE:
            await self._say(error(number, BUSY, f"{MOST_AT_ONCE} requests are going on; wait"))
        else:
            self._begin(number, method, message)

    def _begin(self, number: str | int, method: str, message: Document) -> None:
        task = asyncio.create_task(self._answer(number, method, message))
        self._going_on[number] = task
        task.add_done_callback(lambda _: self._going_on.pop(number))

    def _cancel(self, message: Document) -> None:
        """Stop a request. One that has ended, or that there never was, is nobody's fault."""
        with suppress(Malformed):
            number = member(message, "params").get("requestId")
            task = self._going_on.get(number) if isinstance(number, str | int) else None
            if task is not None:
                task.cancel()

    async def _answer(self, number: str | int, method: str, message: Document) -> None:
        try:
            result = await self._result(method, member(message, "params"))
        except Malformed as problem:
            said = error(number, INVALID_PARAMS, str(problem))
        except Refused as refused:
            said = error(number, refused.code, str(refused))
        except Exception as fault:  # the border: a client must not wait for ever
            log.exception("%s failed", method)
            said = error(number, INTERNAL_ERROR, f"Podium failed: {type(fault).__name__}")
        else:
            said = answer(number, result)
        with suppress(ConnectionError):  # the end of the client's input is soon to come
            await self._say(said)

    async def _result(self, method: str, params: Document) -> Mapping[str, Any]:
        match method:
            case "initialize":
                return _greeting(text(params, "protocolVersion"))
            case "ping":
                return {}
            case "tools/list":
                return {"tools": OFFERED}
            case "tools/call":
                return await self._call(params)
        raise Refused(METHOD_NOT_FOUND, f"Podium has no method {method[:100]!r}")

    async def _call(self, params: Document) -> Mapping[str, Any]:
        tool = text(params, "name")
        if all(tool != offered["name"] for offered in OFFERED):
            known = ", ".join(offered["name"] for offered in OFFERED)
            raise Refused(INVALID_PARAMS, f"there is no tool {tool[:100]!r}; there is {known}")
        meta = member(params, "_meta")
        token = meta.get("progressToken")
        progress = None if token is None else self._progress(token)
        usual = await self._less(meta.get(EXCLUDED))
        return await carry_out(self._podium, usual, tool, member(params, "arguments"), progress)

    async def _less(self, excluded: object) -> RunOptions:
        """The usual wishes, less whoever must see nothing of the run that the call is a part of.
        The client's pool may be another, so names that nobody has here are passed over."""
        named = excluded if isinstance(excluded, list) else []
        names = frozenset(name for name in named if isinstance(name, str))
        known = names & await self._podium.excludable() if names else names
        if not known:
            return self._usual
        return {**self._usual, "exclude": self._usual.get("exclude", frozenset()) | known}

    def _progress(self, token: Any) -> Progress:
        """Tells the client what is being done in a request that asked for it."""
        told = 0

        def tell(line: str) -> None:
            nonlocal told
            told += 1
            params = {"progressToken": token, "progress": told, "message": line}
            if not self._writer.is_closing():
                self._writer.write(write(notification("notifications/progress", params)) + b"\n")

        return tell

    async def _say(self, message: Document) -> None:
        self._writer.write(write(message) + b"\n")
        await self._writer.drain()


def _greeting(version: str) -> dict[str, Any]:
    return {
        "protocolVersion": version if version in VERSIONS else VERSIONS[0],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "podium", "title": "Podium", "version": __version__},
        "instructions": INSTRUCTIONS,
    }


def claim_standard_output() -> int:
    """A descriptor of the client's own, and from now on whatever else is printed is an error
    message: a stray word would be taken for a broken one."""
    sys.stdout.flush()
    wire = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return wire


async def serve_standard_streams(podium: AsyncPodium, wire: int, usual: RunOptions) -> None:
    """Serve the client at standard input; `wire` is where it reads."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LARGEST_MESSAGE)
    try:
        incoming, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        outgoing, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(wire, "wb")
        )
    except (OSError, ValueError) as problem:
        raise UsageError(
            "standard input and output are not pipes; podium mcp is started by an MCP client, "
            "which docs/mcp.md shows how to set up"
        ) from problem
    writer = asyncio.StreamWriter(outgoing, protocol, None, loop)
    try:
        await McpServer(podium, reader, writer, usual).serve()
    finally:
        incoming.close()
        writer.close()
