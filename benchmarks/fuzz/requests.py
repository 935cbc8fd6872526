"""Mutate request bodies: as values, then as text, then their headers and chunks."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from random import Random
from typing import Any, Final

BODIES: Final[dict[str, list[dict[str, Any]]]] = json.loads(
    resources.files(__package__).joinpath("bodies.json").read_text("utf-8")
)
"""Bodies that clients send, by path."""

ODD: Final[list[Any]] = [
    *(None, True, False, 0, -1, 5.0, 0.1, 2**63, -(2**200), 1e308, float("nan"), float("inf")),
    *("", " ", "podium", "\x00", "\ud800", "é\u202e", "x" * 5000, "{}", "https://[", "data:,"),
    *("call_0123456789abcdef_1", "resp_0123456789abcdef", "run_", "../../etc/passwd", "%s%n"),
    *([], {}, [[]], [None], [{}], {"": None}, {"type": "object"}, {"$ref": "#"}, {"type": []}),
    {"type": "string", "pattern": "(a+)+$"},
]
"""Values that may be put anywhere in a body."""

HEADERS: Final = {
    "X-Podium-Budget": ("usd", "usd=", "usd=x", "calls=1e99", "=1", ",", "calls=-1", "\xe9=1"),
    "X-Podium-Exclude": ("", ",", "nobody", "solver-works,seer-works,plain-works"),
    "X-Podium-Max-Steps": ("0", "-1", "1.5", "nan", "9" * 400, "inf"),
    "X-Podium-Rounds": ("0", "1e400", "x"),
    "X-Podium-Workflow": ("", "{", "[]", '{"steps": []}', '{"steps": [{"worker": "nobody"}]}'),
    "X-Podium-Trace": ("", "2", "true"),
    "Authorization": ("Bearer", "Basic x", "Bearer pk__", "Bearer " + "x" * 5000, "\xff"),
    "anthropic-version": ("", "1999"),
}
"""Headers that the server reads, with invalid values."""


MOST_BYTES: Final = 200_000
DEPTHS: Final = (3, 20, 62, 63, 64, 65, 200)
FAR_TOO_DEEP: Final = (500, 990, 3000, 40_000)
"""Deeper than Python's own encoder goes, so it is inserted into the text."""

TEXTS: Final = (
    *("", " ", "\x00", "\x1b[2J", "\ufeff", "\u2028", "\U0001f600" * 30, "e\u0301", "\ud83d"),
    *("{}", "[]", "null", "podium", "podium-mini", "podium-ultra", "solver", "plain", "auto"),
    *("none", "required", "low", "</subtask>", "<think>", "data: [DONE]\n\n", "event: x", "\r\n"),
    *("%s", "{0}", "$ref", "\\", "a" * 4000, "(a+)+$", "../..", "https://example.com/a.png"),
    *("http://169.254.169.254/", "data:image/png;base64,AA=="),
    'model_id = [0]\nsubtasks = ["x"]\naccess_list = [[]]',
)
"""Strings with a meaning somewhere in the API."""

Body = dict[str, Any]
Place = tuple[Any, Any]
"""A container and a key or index in it."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One request: its body in chunks, and its headers."""

    pieces: tuple[bytes, ...]
    headers: tuple[tuple[bytes, bytes], ...]

    def __str__(self) -> str:
        return f"{self.headers!r} {b''.join(self.pieces)!r}"


def is_deep(value: Any, allowed: int = 60) -> bool:
    """True if the body nests too deep to make others from."""
    layer = [value]
    for _ in range(allowed):
        layer = [
            inner
            for item in layer
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not layer:
            return False
    return True


def copied(value: Any) -> Any:
    """Copy the value of a body."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, list) else value


def places(value: Any) -> list[Place]:
    """Yield every place of a body."""
    found: list[Place] = []
    waiting = [value]
    while waiting:
        inside = waiting.pop()
        keys: Any = inside if isinstance(inside, dict) else range(len(inside))
        for key in keys:
            found.append((inside, key))
            if isinstance(inside[key], dict | list):
                waiting.append(inside[key])
    return found


def _another(inside: Any, key: Any, others: Sequence[Body], chance: Random) -> None:
    inside[key] = copied(chance.choice(ODD))


def _gone(inside: Any, key: Any, others: Sequence[Body], chance: Random) -> None:
    del inside[key]


def _wrapped(inside: Any, key: Any, others: Sequence[Body], chance: Random) -> None:
    inside[key] = chance.choice(([inside[key]], {"text": inside[key]}, {"type": inside[key]}))


def _more(inside: Any, key: Any, others: Sequence[Body], chance: Random) -> None:
    if isinstance(inside, dict):
        inside[chance.choice(("n", "type", "podium", "zone", "", "\ud800", "x" * 300))] = inside[
            key
        ]
    else:
        inside.extend([inside[key]] * chance.choice((1, 1, 2, 30, 300)))


def _elsewhere(inside: Any, key: Any, others: Sequence[Body], chance: Random) -> None:
    foreign, where = chance.choice(places(chance.choice(others)))
    inside[key] = copied(foreign[where])


def _deep(inside: Any, key: Any, others: Sequence[Body], chance: Random) -> None:
    value = inside[key] if chance.random() < 0.5 else {}
    name = chance.choice(("a", "type", "items", "properties", "content", "$ref", "anyOf"))
    for _ in range(chance.choice(DEPTHS)):
        value = {name: value} if chance.random() < 0.5 else [value]
    inside[key] = value


def _long(inside: Any, key: Any, others: Sequence[Body], chance: Random) -> None:
    piece = chance.choice(("x", "é", "\U0001f600", " ", "\x00", "a b ", "<think>", '"', "\u202e"))
    inside[key] = piece * chance.choice((64, 65, 256, 257, 1025, 9000))


def _number(inside: Any, key: Any, others: Sequence[Body], chance: Random) -> None:
    inside[key] = chance.choice(
        (0, -1, 1, 2**31, 2**53, 2**63, 2**64, 10**400, -0.0, 1e-320, 1e308, 1.5, 3.0, float("nan"))
    )


def _alike(inside: Any, key: Any, others: Sequence[Body], chance: Random) -> None:
    """Return another value of the same kind, which passes the first checks."""
    match inside[key]:
        case bool() as flag:
            inside[key] = not flag
        case int() | float():
            inside[key] = chance.choice((0, 1, 2, 7, 100, 4096, 0.25))
        case str() as text:
            inside[key] = chance.choice((text * 2, text.upper(), text[:-1], *TEXTS))
        case list() as items:
            inside[key] = chance.choice((items[:1], items * 2, items[::-1], items[1:]))
        case dict() as fields if fields:
            fields.pop(chance.choice(list(fields)))


DAMAGES: Final[Sequence[Callable[[Any, Any, Sequence[Body], Random], None]]] = (
    *(_alike,) * 12,
    *(_another, _another, _gone, _gone, _wrapped, _more, _elsewhere, _elsewhere),
    *(_number, _long, _deep),
)


def damaged(body: Body, others: Sequence[Body], chance: Random) -> Body:
    """Apply one to three mutations to the body."""
    body = copied(body)
    for _ in range(1 + int(chance.random() ** 2 * 3)):
        found = places(body)
        if not found:
            break
        inside, key = found[int(chance.random() * len(found))]
        DAMAGES[int(chance.random() * len(DAMAGES))](inside, key, others, chance)
    return body


def _key_twice(text: str, chance: Random) -> bytes:
    value = chance.choice(('"podium"', "null", "[]", "{}", "1", '"solver"'))
    key = chance.choice(("model", "messages", "input", "stream", "max_tokens", "tools"))
    return text.encode("utf-8", "surrogatepass").replace(b"{", f'{{"{key}":{value},'.encode(), 1)


def _far_too_deep(text: str, chance: Random) -> bytes:
    opening, closing = chance.choice((("[", "]"), ('{"a":', "}")))
    depth = chance.choice(FAR_TOO_DEEP)
    value = opening * depth + "0" + closing * (depth if chance.random() < 0.7 else 0)
    return text.replace("null", value, 1).replace('"user"', value, 1).encode()


def _other_encoding(text: str, chance: Random) -> bytes:
    name = chance.choice(("utf-16", "utf-32", "utf-8-sig", "latin-1", "utf-16-be", "utf-7"))
    return text.encode(name, "replace")


def _cut_off(text: str, chance: Random) -> bytes:
    whole = text.encode("utf-8", "surrogatepass")
    return whole[: int(chance.random() * len(whole))]


def _bytes_changed(text: str, chance: Random) -> bytes:
    whole = bytearray(text.encode("utf-8", "surrogatepass"))
    for _ in range(chance.choice((1, 1, 2, 8))):
        whole[int(chance.random() * len(whole))] = chance.randrange(256)
    return bytes(whole)


def _followed(text: str, chance: Random) -> bytes:
    more = chance.choice(
        (b"\x00", b"}", b" {}", b"\n" * 1000, b"\xff", b"]" * 50, text.encode()[:50])
    )
    return text.encode() + more


def _zipped(text: str, chance: Random) -> bytes:
    whole = gzip.compress(text.encode(), 1, mtime=0)
    return whole if chance.random() < 0.5 else whole[: len(whole) // 2]


WRITINGS: Final[Sequence[Callable[[str, Random], bytes]]] = (
    *(_key_twice, _other_encoding, _cut_off, _bytes_changed, _bytes_changed, _followed, _zipped),
    _far_too_deep,
)


def sent(body: Body, token: str, chance: Random) -> Sent:
    """Encode the body, most often as a client would."""
    text = json.dumps(body, ensure_ascii=chance.random() < 0.8)
    if chance.random() < 0.2:
        plain = text if text.isascii() else json.dumps(body)
        whole = WRITINGS[int(chance.random() * len(WRITINGS))](plain, chance)
    else:
        whole = text.encode("utf-8", "surrogatepass")
    whole = whole[:MOST_BYTES]
    headers = [
        (b"content-type", b"application/json"),
        (b"authorization", f"Bearer {token}".encode()),
    ]
    if chance.random() < 0.1:
        name = chance.choice(list(HEADERS))
        value = chance.choice(HEADERS[name])
        headers.append((name.lower().encode(), value.encode("latin-1", "replace")))
    if chance.random() < 0.05:
        headers.append(
            chance.choice(
                (
                    (b"content-encoding", b"gzip"),
                    (b"content-type", b"text/plain; charset=utf-16"),
                    (b"content-length", b"99999999999999999999"),
                    (b"content-length", b"-1"),
                    (b"accept", b"application/xml"),
                    (b"x-podium-hops", b"1"),
                )
            )
        )
    if chance.random() < 0.1:
        middle = int(chance.random() * (len(whole) + 1))
        return Sent((whole[:middle], whole[middle:]), tuple(headers))
    return Sent((whole,), tuple(headers))
