"""Arrays and numbers as JSON, so that what was learned is kept in text and never in a pickle.

What is read can be computed with: no number of a file is infinite, or none at all, and an array is
of the shape that its reader expects.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from podium.core.errors import ConfigError


def keep_both_ends(text: str, most: int) -> str:
    """The text where it has at most so many characters, else as many of its beginning and its end,
    in lines of their own. Half of a surrogate pair, which nobody can encode, is a question mark."""
    half = most // 2
    read = text if len(text) <= most else f"{text[:half]}\n{text[-half:]}"
    return read.encode("utf-8", "replace").decode("utf-8")


SEEDS: Final = 2**32


def normalize_seed(seed: int) -> int:
    """The seed itself where generators know it, else one that stands for it."""
    return seed % SEEDS


Array = NDArray[np.floating[Any]]
"""What routers compute with."""

Stored = Literal["float32", "float16", "uint16"]
"""What numbers are kept as: a half is enough where the third digit says nothing any more."""

AGAIN: Final = (
    "train it again by `podium train router RECIPE`, or, if that wrote it, by `podium eval fit "
    "STRATEGY SUITE`"
)
"""What helps where a file cannot be read."""

_STORED: Final = MappingProxyType(
    {name: np.dtype(name).newbyteorder("<") for name in ("float32", "float16", "uint16")}
)


def encode_array(array: NDArray[Any], stored: Stored = "float32") -> dict[str, Any]:
    """The array as JSON: its shape, and its numbers in base64."""
    numbers = np.ascontiguousarray(array, dtype=_STORED[stored])
    return {"shape": list(array.shape), stored: base64.b64encode(numbers.tobytes()).decode()}


Shape = tuple[int | None, ...]
"""How long an array is along each of its axes; None is any length from 1 up."""


def decode_array(document: object) -> Array:
    """The array that was packed, in float32, which has room for all that is kept."""
    try:
        if not isinstance(document, Mapping):
            raise TypeError("not an object")
        stored = next((name for name in _STORED if name in document), "float32")
        raw = base64.b64decode(document[stored], validate=True)
        numbers = np.frombuffer(raw, dtype=_STORED[stored]).reshape(document["shape"])
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise ConfigError(
            f"expected an array as its shape and its numbers in base64, and found another thing "
            f"({type(error).__name__}: {error}); {AGAIN}"
        ) from error
    # One that is no number makes all that it is added to none, and a router sure of nothing.
    if not np.isfinite(numbers).all():
        raise ConfigError(
            f"an array of the shape {numbers.shape} has what is no number, or infinite; {AGAIN}"
        )
    return numbers.astype(np.float32)


def read_array(document: Mapping[str, Any], name: str, shape: Shape) -> Array:
    """The array that was packed under that name, if it is of that shape."""
    found = decode_array(document.get(name))
    does_fit = found.ndim == len(shape) and all(
        own >= 1 if wanted is None else own == wanted
        for own, wanted in zip(found.shape, shape, strict=True)
    )
    if not does_fit:
        expected = ", ".join("1 or more" if length is None else str(length) for length in shape)
        raise ConfigError(
            f"expected the array {name!r} in the shape ({expected}), not {found.shape}; {AGAIN}"
        )
    return found


def read_number(value: object, what: str, least: float = -np.inf) -> float:
    """The number that was written down, if it is one that can be computed with."""
    try:
        found = float(value) if isinstance(value, int | float) else np.nan
    except OverflowError:  # JSON has whole numbers of any length
        found = np.inf
    if not np.isfinite(found) or found < least:
        raise ConfigError(f"expected {what}, not {value!r:.40}; {AGAIN}")
    return found


def round_to_float16(array: Array) -> Array:
    """The array with as many digits as are kept of it in a half, so that it is the same before it
    was written down and after."""
    return array.astype(np.float16).astype(np.float32)


def normalize_rows(rows: Array) -> Array:
    """Every row at length one; a row of zeros stays as it is."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    found: Array = rows / np.where(lengths > 0, lengths, 1)
    return found
