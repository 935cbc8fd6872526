"""Send mutated requests to the real application in this process, and check its answers.

The server must answer in the dialect of the request, in time, without a 5xx and without an error in
its log. Workers are scripted and the store is a file; only the socket is missing. Bodies that were
answered join the corpus.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx

from benchmarks.chaos.report import ChaosRow
from benchmarks.chaos.workload import application_in_process, read_data
from benchmarks.timing import settled_heap
from podium.server.access.keys import make_key
from podium.store.keys import Rules

MAX_FINDINGS: Final = 20
"""A campaign stops after so many findings in a dialect."""

LONGEST_SHOWN: Final = 2000

Body = dict[str, Any]


CONFIGURATION: Final = read_data("fuzz.toml")
BODIES: Final[dict[str, list[Body]]] = json.loads(read_data("fuzz_bodies.json"))
_VALUES: Final = json.loads(read_data("fuzz_values.json"))

HEADERS: Final[dict[str, list[str]]] = _VALUES["headers"] | {
    "X-Podium-Max-Steps": [*_VALUES["headers"]["X-Podium-Max-Steps"], "9" * 400]
}
"""Headers that the server reads, with invalid values."""

ODD: Final[list[Any]] = [*_VALUES["odd"], "x" * 5000, 10**400, 1e-320, -0.0, 2**53, 1.5]
"""Values that may be put anywhere in a body."""

TEXTS: Final[list[str]] = [*_VALUES["texts"], "a" * 4000, "\U0001f600" * 30]
"""Strings with a meaning somewhere in the API."""

ENCODINGS: Final = ("utf-16", "utf-32", "utf-8-sig", "latin-1", "utf-16-be", "utf-7")
MAX_BYTES: Final = 200_000
DEPTHS: Final = (3, 20, 62, 63, 64, 65, 200)
FAR_TOO_DEEP: Final = (500, 990, 3000, 40_000)
"""Deeper than Python's own encoder goes, so it is inserted into the text."""

ODD_HEADERS: Final = (
    (b"content-encoding", b"gzip"),
    (b"content-type", b"text/plain; charset=utf-16"),
    (b"content-length", b"99999999999999999999"),
    (b"content-length", b"-1"),
    (b"accept", b"application/xml"),
    (b"x-podium-hops", b"1"),
)


@dataclass(frozen=True, slots=True)
class EncodedRequest:
    """One request: its body in chunks, and its headers."""

    pieces: tuple[bytes, ...]
    headers: tuple[tuple[bytes, bytes], ...]

    def __str__(self) -> str:
        return f"{self.headers!r} {b''.join(self.pieces)!r}"

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth_of, inner), default=0)


def positions(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every position of a body: a container, and a key or index in it."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from positions(value[key])


def damage(body: Body, others: Sequence[Body], rng: Random) -> Body:
    """Apply one to three mutations to the body, half of which pass the first checks."""
    body = deepcopy(body)
    for _ in range(1 + int(rng.random() ** 2 * 3)):
        found = list(positions(body))
        if not found:
            break
        inside, key = rng.choice(found)
        value = inside[key]
        match rng.randrange(16):
            case 0 | 1:
                del inside[key]
            case 2:
                inside[key] = rng.choice(([value], {"text": value}, {"type": value}))
            case 3 if isinstance(inside, dict):
                inside[rng.choice(("n", "type", "podium", "zone", "", "\ud800"))] = value
            case 3:
                inside.extend([value] * rng.choice((1, 1, 2, 30, 300)))
            case 4:
                foreign, where = rng.choice(list(positions(rng.choice(others))))
                inside[key] = deepcopy(foreign[where])
            case 5:
                name = rng.choice(("a", "type", "items", "properties", "content", "$ref"))
                for _ in range(rng.choice(DEPTHS)):
                    value = {name: value} if rng.random() < 0.5 else [value]
                inside[key] = value
            case 6:
                piece = rng.choice(("x", "é", "\U0001f600", " ", "\x00", "<think>", "\u202e"))
                inside[key] = piece * rng.choice((64, 65, 256, 257, 1025, 9000))
            case 7:
                inside[key] = deepcopy(rng.choice(ODD))
            case _:
                inside[key] = _alike(value, rng)
    return body


def _alike(value: Any, rng: Random) -> Any:
    """Return another value of the same kind."""
    match value:
        case bool():
            return not value
        case int() | float():
            return rng.choice((0, 1, 2, 7, 100, 4096, 0.25))
        case str():
            return rng.choice((value * 2, value.upper(), value[:-1], *TEXTS))
        case list():
            return rng.choice((value[:1], value * 2, value[::-1], value[1:]))
        case {**fields} if fields:
            fields.pop(rng.choice(list(fields)))
            return fields
    return value


def encode_request(body: Body, token: str, rng: Random) -> EncodedRequest:
    """Encode the body, most often as a client would."""
    text = json.dumps(body, ensure_ascii=rng.random() < 0.8)
    whole = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.2:
        whole = _misencode(text if text.isascii() else json.dumps(body), rng)
    whole = whole[:MAX_BYTES]
    headers = [
        (b"content-type", b"application/json"),
        (b"authorization", f"Bearer {token}".encode()),
    ]
    if rng.random() < 0.1:
        name = rng.choice(list(HEADERS))
        value = rng.choice(HEADERS[name])
        headers.append((name.lower().encode(), value.encode("latin-1", "replace")))
    if rng.random() < 0.05:
        headers.append(rng.choice(ODD_HEADERS))
    if rng.random() < 0.1:
        middle = int(rng.random() * (len(whole) + 1))
        return EncodedRequest((whole[:middle], whole[middle:]), tuple(headers))
    return EncodedRequest((whole,), tuple(headers))


def _misencode(text: str, rng: Random) -> bytes:
    """Return the text of a body with an encoding error."""
    whole = bytearray(text.encode())
    match rng.randrange(8):
        case 0:
            key = rng.choice(("model", "messages", "input", "stream", "max_tokens", "tools"))
            value = rng.choice(('"podium"', "null", "[]", "{}", "1", '"solver"'))
            return text.replace("{", f'{{"{key}":{value},', 1).encode()
        case 1:
            return text.encode(rng.choice(ENCODINGS), "replace")
        case 2:
            return bytes(whole[: int(rng.random() * len(whole))])
        case 3:
            more = (b"\x00", b"}", b" {}", b"\n" * 1000, b"\xff", b"]" * 50, bytes(whole[:50]))
            return bytes(whole) + rng.choice(more)
        case 4:
            zipped = gzip.compress(whole, 1, mtime=0)
            return zipped[: rng.choice((len(zipped), len(zipped) // 2))]
        case 5:
            opening, closing = rng.choice((("[", "]"), ('{"a":', "}")))
            depth = rng.choice(FAR_TOO_DEEP)
            deep = opening * depth + "0" + closing * rng.choice((depth, depth, 0))
            return text.replace("null", deep, 1).replace('"user"', deep, 1).encode()
        case _:
            for _ in range(rng.choice((1, 1, 2, 8))):
                whole[int(rng.random() * len(whole))] = rng.randrange(256)
            return bytes(whole)


CHAT: Final = "/v1/chat/completions"
RESPONSES: Final = "/v1/responses"
MESSAGES: Final = "/v1/messages"
PATHS: Final = (CHAT, RESPONSES, MESSAGES)

WHOLE: Final = {
    CHAT: ("object", "chat.completion"),
    RESPONSES: ("object", "response"),
    MESSAGES: ("type", "message"),
}
"""The field that says what an answer is, and what it says."""

ENDINGS: Final = {
    RESPONSES: ("response.completed", "response.incomplete", "response.failed", "error"),
    MESSAGES: ("message_stop", "error"),
}
"""The types of the last event of a stream."""

SPOILED: Final = b"twice for JSON"
"""In the answer where a worker wrote no JSON that fits the schema: not the server's fault."""

LONGEST_MESSAGE: Final = 4000
TYPE: Final = "content-type"


class InvalidResponse(Exception):
    """A response that a client cannot use."""


def judge(response: httpx.Response, path: str) -> None:
    """Raise `InvalidResponse` for an answer that a client cannot read."""
    status, body, media_type = response.status_code, response.content, response.headers[TYPE]
    shown = f"{status}: {body[:300]!r}"
    if status >= 500 and not (status == 502 and SPOILED in body):
        raise InvalidResponse(f"answered {shown}")
    if b"internal server error" in body:
        raise InvalidResponse(f"failed within: {shown}")
    if media_type.startswith("text/event-stream"):
        _judge_stream(body.decode(), path)
        return
    if media_type != "application/json":
        raise InvalidResponse(f"the answer is {media_type!r}")
    document = _object(body.decode())
    if status >= 400:
        _judge_error(document, path)
    elif status != 200 or document.get(WHOLE[path][0]) != WHOLE[path][1]:
        raise InvalidResponse(f"no answer of this dialect: {shown}")


def _object(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise InvalidResponse(f"not JSON ({error}): {text[:300]!r}") from None
    if not isinstance(document, Mapping):
        raise InvalidResponse(f"no object: {text[:300]!r}")
    return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _judge_error(document: Mapping[str, Any], path: str) -> None:
    """Check an error: Anthropic's form for Messages, else OpenAI's."""
    error = document.get("error")
    has_form = document.get("type") == "error" if path == MESSAGES else len(document) == 1
    if not has_form or not isinstance(error, Mapping):
        raise InvalidResponse(f"no error of this dialect: {document!r:.300}")
    if path != MESSAGES and not {"message", "type", "param", "code"} <= error.keys():
        raise InvalidResponse(f"an error without its fields: {error!r:.300}")
    texts = (error.get("message"), error.get("type"))
    if not all(isinstance(text, str) and 0 < len(text) <= LONGEST_MESSAGE for text in texts):
        raise InvalidResponse(f"an error without words, or with too many: {error!r:.300}")


def _judge_stream(text: str, path: str) -> None:
    *documents, last = _data(text)
    for document in documents:
        _object(document)
    is_end = last == "[DONE]" if path == CHAT else _object(last).get("type") in ENDINGS[path]
    if not is_end:
        raise InvalidResponse(f"a stream that ends with {last[:300]!r}")


def _data(text: str) -> Iterator[str]:
    """Yield the data of each event; comments have none."""
    events = text.split("\n\n")
    if events.pop():
        raise InvalidResponse("a stream that breaks off in an event")
    for event in events:
        lines = [line for line in event.split("\n") if line and not line.startswith(":")]
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        named = [line for line in lines if line.startswith("event: ")]
        if lines and (len(data) != 1 or len(data) + len(named) != len(lines)):
            raise InvalidResponse(f"no event: {event[:300]!r}")
        yield from data


SECONDS_ALLOWED: Final = 20.0
"""Timeout of an answer, on a busy machine."""

CPU_SECONDS_ALLOWED: Final = 2.0
"""CPU limit for so small a body."""

MAX_BODIES: Final = 300
"""Size of the corpus; the oldest leave first."""

LEARNED_SHARE: Final = 0.2
DEEPEST_LEARNED: Final = 60
LOGGERS: Final = ("podium", "asyncio", "uvicorn")


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(f"{record.getMessage()} {record.exc_info!r}")


@dataclass(slots=True)
class BodyCampaign:
    client: httpx.AsyncClient
    path: str
    token: str
    rng: Random
    errors: _Errors
    corpus: deque[Body] = field(default_factory=lambda: deque(maxlen=MAX_BODIES))
    findings: list[str] = field(default_factory=list)

    async def run(self, count: int) -> None:
        bodies, rng = BODIES[self.path], self.rng
        others = [body for path in PATHS for body in BODIES[path]]
        for _ in range(count):
            if len(self.findings) >= MAX_FINDINGS:
                return
            known = self.corpus if self.corpus and rng.random() < 0.5 else bodies
            body = damage(known[int(rng.random() * len(known))], others, rng)
            request = encode_request(body, self.token, rng)
            if broken := await self._send(body, request):
                self.findings.append(f"{self.path}: {broken}: {request}"[:LONGEST_SHOWN])

    async def _send(self, body: Body, request: EncodedRequest) -> str:
        """Send one request; return what is wrong with the answer, or nothing."""
        began = time.process_time()
        try:
            async with asyncio.timeout(SECONDS_ALLOWED):
                response = await self.client.post(
                    self.path, content=request.chunks(), headers=request.headers
                )
            judge(response, self.path)
        except TimeoutError:
            return f"no answer after {SECONDS_ALLOWED:g} s"
        except InvalidResponse as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - what must not be raised is what is looked for
            return repr(error)
        taken = time.process_time() - began
        if taken > CPU_SECONDS_ALLOWED:
            return f"took {taken:.1f} s of CPU time"
        if self.errors.messages:
            logged, self.errors.messages = self.errors.messages[0], []
            return f"logged {logged[:500]}"
        learned = response.status_code == 200 and self.rng.random() < LEARNED_SHARE
        if learned and depth_of(body) < DEEPEST_LEARNED:
            self.corpus.append(body)
        return ""


async def measure_fuzz(count: int, seed: int, paths: tuple[str, ...] = PATHS) -> ChaosRow:
    """Send that many mutated requests in each dialect; `bodies_corpus` had a new outcome."""
    errors, campaigns = _Errors(), []
    for name in LOGGERS:
        logging.getLogger(name).addHandler(errors)
    began = time.perf_counter()
    try:
        with TemporaryDirectory(prefix="podium-fuzz-") as directory:
            async with application_in_process(Path(directory), CONFIGURATION) as (app, client):
                made = make_key("a fuzzer", Rules())
                await app.state.holder().store.keys.add(made.key)
                with settled_heap():
                    for path in paths:
                        rng = Random(f"{seed} {path}")  # noqa: S311 -- repeatable
                        campaigns.append(BodyCampaign(client, path, made.token, rng, errors))
                        await campaigns[-1].run(count)
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(errors)
    findings = [finding for one in campaigns for finding in one.findings]
    findings += [f"logged at the end: {message}" for message in errors.messages]
    sent, seconds = count * len(paths), time.perf_counter() - began
    return ChaosRow(
        name="fuzz",
        runs=0,
        seconds=seconds,
        note=f"{sent:,} bodies",
        broken=tuple(findings[:MAX_FINDINGS]),
        figures={
            "bodies": sent,
            "bodies_per_second": round(sent / seconds, 1),
            "bodies_findings": len(findings),
            "bodies_corpus": sum(len(one.corpus) for one in campaigns),
        },
    )
