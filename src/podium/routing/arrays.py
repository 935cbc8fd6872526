"""Arrays as JSON, so that what was learned is kept in text and never in a pickle."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from podium.errors import ConfigError

Array = NDArray[np.floating[Any]]
"""What routers compute with."""

_STORED: Final = np.dtype("<f4")


def packed(array: Array) -> dict[str, Any]:
    """The array as JSON: its shape, and its numbers in base64."""
    numbers = np.ascontiguousarray(array, dtype=_STORED)
    return {"shape": list(array.shape), "float32": base64.b64encode(numbers.tobytes()).decode()}


def unpacked(document: object) -> Array:
    """The array that was packed."""
    try:
        if not isinstance(document, Mapping):
            raise TypeError("not an object")
        raw = base64.b64decode(document["float32"], validate=True)
        numbers = np.frombuffer(raw, dtype=_STORED).reshape(document["shape"])
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise ConfigError(
            f"expected an array as its shape and its numbers in base64, and found another thing: "
            f"{error}; fit the router again"
        ) from error
    return numbers.astype(np.float32)


def unit(rows: Array) -> Array:
    """Every row at length one; a row of zeros stays as it is."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    found: Array = rows / np.where(lengths > 0, lengths, 1)
    return found
