"""A vendor to talk to: a small real HTTP server on loopback, and a check of wire shapes."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import TypeAdapter

from podium.core.pool import CAPABILITIES, Capability, Limits, WorkerProfile
from podium.core.request import (
    Delta,
    Image,
    Message,
    Reply,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    assistant,
    system,
    user,
)
from podium.core.worker import Worker
from podium.workers import Endpoint, Http, connect

KEY = "sk-a-secret-key"
SEVEN_BYTES = 7
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Received:
    """What a client sent."""

    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True)
class Answer:
    """Bytes to send, and whether to keep the connection open and silent after them."""

    data: bytes
    then_hang: bool = False


class Vendor:
    """Answers each request with the next of its answers, the last one again and again."""

    def __init__(self) -> None:
        self.url = ""
        self.received: list[Received] = []
        self.hung_up = asyncio.Event()
        self._answers: list[Answer] = []

    @property
    def body(self) -> Any:
        """The JSON of the last request."""
        return self.received[-1].body

    def says(
        self, document: Any, status: int = 200, headers: Mapping[str, str] = NO_HEADERS
    ) -> None:
        """Answer with one JSON document."""
        self.says_bytes(json.dumps(document).encode(), status=status, headers=headers)

    def says_bytes(
        self,
        body: bytes,
        *,
        status: int = 200,
        headers: Mapping[str, str] = NO_HEADERS,
        length: int | None = None,
    ) -> None:
        """Answer with a body; `length` is what the header claims of it."""
        fields = {"Content-Type": "application/json", **headers}
        fields["Content-Length"] = str(len(body) if length is None else length)
        self._answers.append(Answer(_head(status, fields) + body))

    def streams(
        self, *events: Any, done: bool = True, whole: bool = True, then_hang: bool = False
    ) -> None:
        """Answer with server-sent events, cut into pieces of a few bytes.

        An event is a document, sent as data, with its `type` as the event's name where it has
        one, or raw bytes. `done` adds OpenAI's last event, `whole` ends the stream properly.
        """
        frames = [*map(_frame, events), *([b"data: [DONE]\n\n"] if done else [])]
        stream = b"".join(frames)
        data = _head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        for start in range(0, len(stream), SEVEN_BYTES):
            piece = stream[start : start + SEVEN_BYTES]
            data += b"%x\r\n%s\r\n" % (len(piece), piece)
        ends = whole and not then_hang
        self._answers.append(Answer(data + (b"0\r\n\r\n" if ends else b""), then_hang))

    def stalls(self, status: int) -> None:
        """Answer with a status, and never with the body that it announces."""
        head = _head(status, {"Content-Type": "application/json", "Content-Length": "100"})
        self._answers.append(Answer(head, then_hang=True))

    def hangs(self) -> None:
        """Take the request and never answer."""
        self._answers.append(Answer(b"", then_hang=True))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:])
        }
        body = await reader.readexactly(int(headers["content-length"]))
        self.received.append(Received(head[0].split()[1], headers, json.loads(body)))
        answer = self._answers[min(len(self.received), len(self._answers)) - 1]
        writer.write(answer.data)
        try:
            if answer.then_hang and await reader.read() == b"":
                self.hung_up.set()
            await writer.drain()
        except ConnectionError:
            self.hung_up.set()
        writer.close()


def _head(status: int, fields: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _frame(event: Any) -> bytes:
    if isinstance(event, bytes):
        return event
    named = f"event: {event['type']}\n" if "type" in event else ""
    return f"{named}data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


@pytest.fixture
async def vendor(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Vendor]:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    vendor = Vendor()
    server = await asyncio.start_server(vendor.serve, "127.0.0.1", 0)
    vendor.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield vendor
    server.close()
    await server.wait_closed()


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    http = Http()
    yield http
    await http.close()


Hire = Callable[..., Worker]


@pytest.fixture
def hire(vendor: Vendor, http: Http) -> Hire:
    """Connect to the vendor as a provider's worker; with all capabilities by default."""

    def hire(
        provider: str,
        *,
        model: str = "some-model",
        without: tuple[Capability, ...] = (),
        limits: Limits = Limits(),
        path: str = "",
        headers: Mapping[str, str] = NO_HEADERS,
        **options: Any,
    ) -> Worker:
        profile = WorkerProfile(
            name="ada",
            provider=provider,
            model=model,
            limits=limits,
            capabilities=frozenset(CAPABILITIES) - set(without),
        )
        return connect(profile, Endpoint(vendor.url + path, KEY, headers, options), http)

    return hire


Streamed = Callable[[Worker, Request], Awaitable[tuple[list[Delta], Reply]]]


@pytest.fixture
def streamed() -> Streamed:
    """Stream a reply: its deltas but for the start, and the whole."""

    async def streamed(worker: Worker, request: Request) -> tuple[list[Delta], Reply]:
        *deltas, reply = [piece async for piece in worker.stream(request)]
        assert isinstance(reply, Reply)
        assert all(isinstance(delta, Delta) for delta in deltas)
        contents = [delta for delta in deltas if isinstance(delta, Delta) and delta.kind != "start"]
        return contents, reply

    return streamed


@pytest.fixture
def plain() -> Request:
    """A request that uses nothing but words."""
    return Request((system("Be brief."), user("Hello"), assistant("Hi."), user("Again?")))


WEATHER = Tool("weather", "The weather of a city", {"type": "object", "properties": {}})
CLOCK = Tool("clock", "The time", {"type": "object", "properties": {}})


@pytest.fixture
def pictured() -> Request:
    """A question about two pictures, one sent and one to be fetched."""
    pictures = (Image("image/png", "QUJD"), Image(url="https://example.com/cat.jpg"))
    return Request((Message("user", (Text("Same cat?"), *pictures)),))


@pytest.fixture
def tooled() -> Request:
    """The second turn of a conversation in which two tools were called at once, one of which
    failed. The calls followed a thought of `some-model`, and the user added a word."""
    called = (
        Thinking("I need both.", model="some-model"),
        Text("Let me look."),
        ToolCall("call_a", "weather", '{"city": "Paris"}'),
        ToolCall("call_b", "clock", ""),
    )
    results = (ToolResult("call_a", "sunny"), ToolResult("call_b", "no clock", is_error=True))
    return Request(
        (
            user("Weather and time?"),
            Message("assistant", called),
            Message("tool", results),
            user("Quickly."),
        ),
        tools=(WEATHER, CLOCK),
        tool_choice="auto",
    )


@pytest.fixture
def shown() -> Request:
    """Two tools were called at once: one showed pictures with a word, the other one without."""
    pictures = (Image("image/png", "QUJD"), Image(url="https://example.com/cat.jpg"))
    calls = (ToolCall("call_a", "weather", "{}"), ToolCall("call_b", "clock", "{}"))
    results = (
        ToolResult("call_a", "radar", images=pictures),
        ToolResult("call_b", "", images=pictures[1:]),
    )
    messages = (user("Look."), Message("assistant", calls), Message("tool", results))
    return Request(messages, tools=(WEATHER, CLOCK))


Fits = Callable[[Any, Any], bool]


@pytest.fixture
def fits() -> Fits:
    """Whether a document is of a vendor's own type, with no field that the type lacks."""

    def fits(kind: Any, document: Any) -> bool:
        adapter = TypeAdapter(kind)  # lists are read lazily, and need it until they are read
        return bool(_thawed(adapter.validate_python(document)) == document)

    return fits


def _thawed(value: Any) -> Any:
    """The document with its lazy lists read, which is what checks their members."""
    if isinstance(value, Mapping):
        return {key: _thawed(member) for key, member in value.items()}
    if isinstance(value, list | tuple | Iterator) or type(value).__name__ == "ValidatorIterator":
        return [_thawed(member) for member in value]
    return value
