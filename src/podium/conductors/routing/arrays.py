"""Arrays and numbers as JSON, so that no learned file is a pickle.

What is read is finite and of the expected shape.
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
    """Return the text, or its two ends on lines of their own if it is longer than `most`.

    An unpaired surrogate becomes a question mark, so that the text can be encoded.
    """
    half = most // 2
    read = text if len(text) <= most else f"{text[:half]}\n{text[-half:]}"
    return read.encode("utf-8", "replace").decode("utf-8")


SEEDS: Final = 2**32


def normalize_seed(seed: int) -> int:
    """Map any integer to a seed that numpy accepts."""
    return seed % SEEDS


Array = NDArray[np.floating[Any]]

Stored = Literal["float32", "float16", "uint16"]
"""Types of stored numbers."""

AGAIN: Final = "train it again by `podium train router RECIPE`"
"""The remedy for a file that cannot be read."""

_STORED: Final = MappingProxyType(
    {name: np.dtype(name).newbyteorder("<") for name in ("float32", "float16", "uint16")}
)


def encode_array(array: NDArray[Any], stored: Stored = "float32") -> dict[str, Any]:
    """Encode the array as JSON: its shape, and its numbers in base64."""
    numbers = np.ascontiguousarray(array, dtype=_STORED[stored])
    return {"shape": list(array.shape), stored: base64.b64encode(numbers.tobytes()).decode()}


Shape = tuple[int | None, ...]
"""Length of each axis; None is any length from 1 up."""


def decode_array(document: object) -> Array:
    """Decode the array to float32, which holds every stored type."""
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
    """Read the array of that name; `ConfigError` if it has another shape."""
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
    """Read a finite number; `ConfigError` otherwise."""
    try:
        found = float(value) if isinstance(value, int | float) else np.nan
    except OverflowError:  # JSON has whole numbers of any length
        found = np.inf
    if not np.isfinite(found) or found < least:
        raise ConfigError(f"expected {what}, not {value!r:.40}; {AGAIN}")
    return found


def round_to_float16(array: Array) -> Array:
    """Round to float16, so that the array is the same before and after it is stored."""
    return array.astype(np.float16).astype(np.float32)


def normalize_rows(rows: Array) -> Array:
    """Scale every row to length one; a row of zeros stays as it is."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    found: Array = rows / np.where(lengths > 0, lengths, 1)
    return found
