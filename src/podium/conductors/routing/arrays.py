"""Arrays as JSON, so that no learned file is a pickle."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray


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

RETRAIN_HINT: Final = "train it again by `podium train router RECIPE`"
"""The remedy for a file that cannot be read."""

_STORED: Final = np.dtype("<f4")


def encode_array(array: Array) -> dict[str, Any]:
    """Encode the array as JSON: its shape, and its numbers as float32 in base64."""
    numbers = np.ascontiguousarray(array, dtype=_STORED)
    return {"shape": list(array.shape), "float32": base64.b64encode(numbers.tobytes()).decode()}


def decode_array(document: Mapping[str, Any]) -> Array:
    numbers = np.frombuffer(base64.b64decode(document["float32"]), dtype=_STORED)
    return numbers.reshape(document["shape"]).astype(np.float32)


def normalize_rows(rows: Array) -> Array:
    """Scale every row to length one; a row of zeros stays as it is."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    found: Array = rows / np.where(lengths > 0, lengths, 1)
    return found
