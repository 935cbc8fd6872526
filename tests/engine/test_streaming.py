"""A stream that breaks off is continued, and no text is sent twice."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

from podium.core.errors import RequestRefused, Unavailable, WorkerError
from podium.core.events import StepDelta, StepRetried, ToolCallDelta
from podium.core.request import (
    Delta,
    Reply,
    Request,
    ResponseOptions,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
)
from podium.core.workflow import Step, Workflow
from podium.engine import Execution
from support.harness import EngineHarness, FakeWorker

PLAN = Workflow((Step("a", "tell"),))


class Breaking(FakeWorker):
    """Streams these texts in turn, letter by letter; one that ends in `!` breaks off there."""

    def __init__(
        self, name: str, *texts: str, fallback: str | None = None, error: WorkerError | None = None
    ) -> None:
        super().__init__(name, fallback=fallback)
        self.texts = list(texts)
        self.error = error or Unavailable("broken off")

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        self.requests.append(request)
        text = self.texts.pop(0)
        for letter in text.removesuffix("!"):
            yield Delta(letter)
        if text.endswith("!"):
            raise self.error
        yield Reply(text, Usage(1, 1, 0, 0, 0))


async def stream_all(engine: EngineHarness, *fakes: FakeWorker) -> tuple[Execution, str, list[int]]:
    execution = await engine.execute(PLAN, *fakes)
    text = "".join(event.text for event in engine.events if isinstance(event, StepDelta))
    return execution, text, [e.sent_chars for e in engine.events if isinstance(e, StepRetried)]


async def test_a_stream_that_breaks_off_is_resumed_by_the_same_worker() -> None:
    fake = Breaking("a", "The answer !", "is 42.")
    execution, text, sent_chars = await stream_all(EngineHarness(), fake)
    assert execution.records[0].reply == text == "The answer is 42."
    assert sent_chars == [len("The answer ")]
    first, begun, asked = fake.requests[1].messages
    assert first == fake.requests[0].messages[0]
    assert (begun.role, begun.text) == ("assistant", "The answer ")
    assert "Go on from exactly there" in asked.text


async def test_a_worker_that_begins_again_repeats_nothing() -> None:
    execution, text, _ = await stream_all(
        EngineHarness(), Breaking("a", "The ans!", "The answer is 42.")
    )
    assert execution.records[0].reply == text == "The answer is 42."


async def test_a_fallback_continues_with_what_the_reader_has() -> None:
    first = Breaking("a", "One, !", fallback="b", error=RequestRefused("no more"))
    second = Breaking("b", "two, !", "three.")
    execution, text, sent_chars = await stream_all(EngineHarness(), first, second)
    assert execution.records[0].reply == text == "One, two, three."
    assert sent_chars == [5, 10]
    assert execution.records[0].answered_by == "b"


async def test_the_sent_text_of_a_failed_reply_is_kept() -> None:
    fake = Breaking("a", "Half an ans!", error=RequestRefused("no more"))
    execution, text, _ = await stream_all(EngineHarness(), fake)
    record = execution.records[0]
    assert (record.status, record.reply, record.error) == ("failed", text, "no more")


async def test_a_reply_that_is_not_streamed_starts_again() -> None:
    outcomes: list[str | Exception] = [Unavailable("down"), "up"]
    fake = FakeWorker("a", lambda _: outcomes.pop(0))
    execution = await EngineHarness(watch=False).execute(PLAN, fake)
    assert execution.records[0].reply == "up"
    assert fake.requests[0] == fake.requests[1]


async def test_words_before_the_use_of_tools_stand_when_the_call_after_it_is_made_again() -> None:
    class Drawer:
        tools: tuple[Tool, ...] = (Tool("look", "Looks it up", {"type": "object"}),)

        async def call(self, call: ToolCall) -> ToolResult:
            return ToolResult(call.id, "found it")

    call = ToolCall("c1", "look", "{}")
    replies: list[Reply | Exception] = [
        Reply("Looking.", finish="tool", tool_calls=(call,)),
        Unavailable("no"),
        Reply("Found."),
    ]
    fake = FakeWorker("a", lambda _: replies.pop(0), can=("tools",))
    execution, text, sent_chars = await stream_all(EngineHarness(toolbox=Drawer()), fake)
    assert text == execution.records[0].reply == "Looking.\n\nFound."
    assert sent_chars == [len("Looking.")]


class Calling(FakeWorker):
    """Streams these calls, piece by piece; with an error it breaks off after the first piece."""

    def __init__(self, *pieces: Delta, error: WorkerError | None = None) -> None:
        super().__init__("a", can=("tools",))
        self.pieces = pieces
        self.error = error

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        self.requests.append(request)
        texts: dict[int, ToolCall] = {}
        for piece in self.pieces:
            yield piece
            if self.error is not None:
                raise self.error
            known = texts.get(piece.call, ToolCall(piece.id, piece.name, ""))
            texts[piece.call] = replace(known, arguments=known.arguments + piece.text)
        yield Reply("", finish="tool", tool_calls=tuple(texts.values()))


CLIENTS = ResponseOptions(tools=(Tool("ask", "Asks the user", {"type": "object"}),))


def piece(text: str, number: int = 0, id_: str = "c1", name: str = "ask") -> Delta:
    return Delta(text, "tool_call", number, id_, name)


async def called(
    engine: EngineHarness, *pieces: Delta, options: ResponseOptions = CLIENTS
) -> list[tuple[int, str, str]]:
    await engine.execute(PLAN, Calling(*pieces), response_options=options)
    sent = [event.delta for event in engine.events if isinstance(event, ToolCallDelta)]
    return [(delta.call, delta.id, delta.text) for delta in sent]


async def test_calls_of_the_clients_tools_are_sent_as_they_come() -> None:
    pieces = piece("{"), piece("}"), piece("{}", 1, "c2")
    assert await called(EngineHarness(), *pieces) == [
        (0, "c1", "{"),
        (0, "c1", "}"),
        (1, "c2", "{}"),
    ]


async def test_calls_of_podiums_own_tools_are_not_sent_nor_counted() -> None:
    pieces = piece("{}", 0, "c1", "look"), piece("{}", 1, "c2")
    assert await called(EngineHarness(), *pieces) == [(0, "c2", "{}")]


async def test_only_the_first_of_calls_is_sent_where_one_at_a_time_is_demanded() -> None:
    one = replace(CLIENTS, parallel_tools=False)
    assert await called(EngineHarness(), piece("{}"), piece("{}", 1, "c2"), options=one) == [
        (0, "c1", "{}")
    ]


async def test_a_call_with_a_provisional_id_is_not_sent() -> None:
    assert await called(EngineHarness(), piece("{}", id_="")) == []
    assert await called(EngineHarness(), piece("{}"), piece("{}", 1)) == [(0, "c1", "{}")]


async def test_a_call_that_was_sent_in_part_is_not_made_again() -> None:
    fake = Calling(piece("{"), error=Unavailable("broken off"))
    engine = EngineHarness()
    execution = await engine.execute(PLAN, fake, response_options=CLIENTS)
    assert len(fake.requests) == 1
    assert execution.records[0].status == "failed"
