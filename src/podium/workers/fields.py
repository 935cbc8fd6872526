"""Reading a provider's JSON: every value is checked, and a wrong one is named.

Providers leave fields out or send null where they have nothing to say, so a missing field reads
as its empty value; a field of the wrong type is `Malformed`, which the HTTP border turns into
`BadReply`. Text that came out of here can be encoded again, and counts can be reckoned with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final, ParamSpec

from podium.core.usage import MOST_TOKENS, UNKNOWN_USAGE, Usage, plausible_usage

Document = Mapping[str, Any]
Arguments = ParamSpec("Arguments")

_NOTHING: Final[Document] = {}


class Malformed(ValueError):
    """The provider sent something that is not in its own protocol."""


def parse(document: str | bytes) -> Document:
    """The JSON object in a document. Raises UnicodeDecodeError if it is not UTF-8."""
    written = document if isinstance(document, str) else document.decode()
    try:
        value = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"expected JSON, got {_shown(written)}") from error
    return as_object(value, "the reply")


def write(document: Any) -> bytes:
    """A request's JSON. Schemas may be any kind of mapping."""
    return json.dumps(document, default=dict, allow_nan=False, separators=(",", ":")).encode()


def as_object(value: Any, name: str) -> Document:
    """The value, which must be a JSON object."""
    if not isinstance(value, Mapping):
        raise Malformed(f"expected an object as {name}, got {_shown(value)}")
    return value


def member(document: Document, key: str) -> Document:
    """The object under that key; empty where there is none."""
    value = document.get(key)
    return _NOTHING if value is None else as_object(value, key)


def members(document: Document, key: str) -> list[Document]:
    """The objects in the list under that key; empty where there is none."""
    value = document.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise Malformed(f"expected a list as {key}, got {_shown(value)}")
    return [as_object(item, key) for item in value]


def text(document: Document, key: str) -> str:
    """The text under that key; empty where there is none."""
    value = document.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Malformed(f"expected text as {key}, got {_shown(value)}")
    return value if value.isascii() else _encodable(value)


def count(document: Document, key: str) -> int | None:
    """The count under that key, or None where the provider did not say."""
    value = document.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_TOKENS:
        raise Malformed(f"expected a count as {key}, got {_shown(value)}")
    return value


def counted(read: Callable[Arguments, Usage]) -> Callable[Arguments, Usage]:
    """A reader of usage objects to which counts that cannot be are unknown, as are all that stand
    beside what is no count: whoever counts wrongly may still have replied well."""

    @wraps(read)
    def reading(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Usage:
        try:
            return plausible_usage(read(*args, **kwargs))
        except Malformed:
            return UNKNOWN_USAGE

    return reading


def _encodable(value: str) -> str:
    """JSON can spell half a character; such a half becomes a replacement mark."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {str(value)[:80]!r}"
