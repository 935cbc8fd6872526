"""What a reader of a body says to what it does not take."""

from __future__ import annotations

from typing import Any

import pytest

from podium.server.api_error import ApiError
from podium.server.dialects.fields import Reader, collect_unknown, join_path
from podium.server.dialects.request import ApiRequest, Dialect


def refusal(reader: Reader[Any], value: object, path: str = "field") -> ApiError:
    """The refusal of a value; a reader that takes it fails the test."""
    with pytest.raises(ApiError) as caught:
        reader(value, path)
    return caught.value


def read_strictly(dialect: Dialect, body: Any) -> ApiRequest:
    """Read a body for a tier of a server with `strict = true`."""
    unknown = collect_unknown()
    request = dialect.read(body)
    for key in (*dialect.fields.find_unknown(request.extra), *unknown):
        raise key.error()
    return request


def ignored_keys(dialect: Dialect, body: Any) -> list[str]:
    """Return the paths of the keys that a tier ignores."""
    unknown = collect_unknown()
    request = dialect.read(body)
    keys = (*dialect.fields.find_unknown(request.extra), *unknown)
    return [join_path(key.path, key.name) for key in keys]
