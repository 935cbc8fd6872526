"""What a reader of a body says to what it does not take."""

from __future__ import annotations

from typing import Any

import pytest

from podium.server.api_error import ApiError
from podium.server.dialects.fields import Reader


def refusal(reader: Reader[Any], value: object, path: str = "field") -> ApiError:
    """The refusal of a value; a reader that takes it fails the test."""
    with pytest.raises(ApiError) as caught:
        reader(value, path)
    return caught.value
