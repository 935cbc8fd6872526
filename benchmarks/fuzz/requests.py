"""Mutate request bodies: as values, then as text, then their headers and chunks.

`bodies.json` holds bodies that clients send, by path; `values.json` what is put into them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from importlib import resources
from random import Random
from typing import Any, Final

Body = dict[str, Any]


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        resources.files(__package__).joinpath(name).read_text("utf-8")
    )
    return found


BODIES: Final[dict[str, list[Body]]] = _read("bodies.json")
_VALUES: Final = _read("values.json")

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


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth_of, inner), default=0)


def positions(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every position of a body: a container, and a key or index in it."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from positions(value[key])


def damage(body: Body, others: Sequence[Body], chance: Random) -> Body:
    """Apply one to three mutations to the body, half of which pass the first checks."""
    body = deepcopy(body)
    for _ in range(1 + int(chance.random() ** 2 * 3)):
        found = list(positions(body))
        if not found:
            break
        inside, key = chance.choice(found)
        value = inside[key]
        match chance.randrange(16):
            case 0 | 1:
                del inside[key]
            case 2:
                inside[key] = chance.choice(([value], {"text": value}, {"type": value}))
            case 3 if isinstance(inside, dict):
                inside[chance.choice(("n", "type", "podium", "zone", "", "\ud800"))] = value
            case 3:
                inside.extend([value] * chance.choice((1, 1, 2, 30, 300)))
            case 4:
                foreign, where = chance.choice(list(positions(chance.choice(others))))
                inside[key] = deepcopy(foreign[where])
            case 5:
                name = chance.choice(("a", "type", "items", "properties", "content", "$ref"))
                for _ in range(chance.choice(DEPTHS)):
                    value = {name: value} if chance.random() < 0.5 else [value]
                inside[key] = value
            case 6:
                piece = chance.choice(("x", "é", "\U0001f600", " ", "\x00", "<think>", "\u202e"))
                inside[key] = piece * chance.choice((64, 65, 256, 257, 1025, 9000))
            case 7:
                inside[key] = deepcopy(chance.choice(ODD))
            case _:
                inside[key] = _alike(value, chance)
    return body


def _alike(value: Any, chance: Random) -> Any:
    """Return another value of the same kind."""
    match value:
        case bool():
            return not value
        case int() | float():
            return chance.choice((0, 1, 2, 7, 100, 4096, 0.25))
        case str():
            return chance.choice((value * 2, value.upper(), value[:-1], *TEXTS))
        case list():
            return chance.choice((value[:1], value * 2, value[::-1], value[1:]))
        case {**fields} if fields:
            fields.pop(chance.choice(list(fields)))
            return fields
    return value


def encode_request(body: Body, token: str, chance: Random) -> EncodedRequest:
    """Encode the body, most often as a client would."""
    text = json.dumps(body, ensure_ascii=chance.random() < 0.8)
    whole = text.encode("utf-8", "surrogatepass")
    if chance.random() < 0.2:
        whole = _misencode(text if text.isascii() else json.dumps(body), chance)
    whole = whole[:MAX_BYTES]
    headers = [
        (b"content-type", b"application/json"),
        (b"authorization", f"Bearer {token}".encode()),
    ]
    if chance.random() < 0.1:
        name = chance.choice(list(HEADERS))
        value = chance.choice(HEADERS[name])
        headers.append((name.lower().encode(), value.encode("latin-1", "replace")))
    if chance.random() < 0.05:
        headers.append(chance.choice(ODD_HEADERS))
    if chance.random() < 0.1:
        middle = int(chance.random() * (len(whole) + 1))
        return EncodedRequest((whole[:middle], whole[middle:]), tuple(headers))
    return EncodedRequest((whole,), tuple(headers))


def _misencode(text: str, chance: Random) -> bytes:
    """Return the text of a body with an encoding error."""
    whole = bytearray(text.encode())
    match chance.randrange(8):
        case 0:
            key = chance.choice(("model", "messages", "input", "stream", "max_tokens", "tools"))
            value = chance.choice(('"podium"', "null", "[]", "{}", "1", '"solver"'))
            return text.replace("{", f'{{"{key}":{value},', 1).encode()
        case 1:
            return text.encode(chance.choice(ENCODINGS), "replace")
        case 2:
            return bytes(whole[: int(chance.random() * len(whole))])
        case 3:
            more = (b"\x00", b"}", b" {}", b"\n" * 1000, b"\xff", b"]" * 50, bytes(whole[:50]))
            return bytes(whole) + chance.choice(more)
        case 4:
            zipped = gzip.compress(whole, 1, mtime=0)
            return zipped[: chance.choice((len(zipped), len(zipped) // 2))]
        case 5:
            opening, closing = chance.choice((("[", "]"), ('{"a":', "}")))
            depth = chance.choice(FAR_TOO_DEEP)
            deep = opening * depth + "0" + closing * chance.choice((depth, depth, 0))
            return text.replace("null", deep, 1).replace('"user"', deep, 1).encode()
        case _:
            for _ in range(chance.choice((1, 1, 2, 8))):
                whole[int(chance.random() * len(whole))] = chance.randrange(256)
            return bytes(whole)
