"""Floating-point numbers in a file of numpy's, as a coordinator and a search for one keep them.
What their shape has to be is for whoever reads them to say. Needs numpy.
"""

from __future__ import annotations

from pathlib import Path
from tokenize import TokenError
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from podium.core.errors import ConfigError

DAMAGED: Final = (OSError, ValueError, EOFError, SyntaxError, TokenError, MemoryError)
"""What numpy raises over a file: its header is a Python literal, and names a size of its own."""


def read_floats(path: Path, advice: str) -> NDArray[np.floating[Any]]:
    """The numbers in that file, without pickles; an error says what is wrong with it, and what to
    do."""
    try:
        with path.open("rb") as file:
            found: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    except DAMAGED as error:
        raise ConfigError(f"{path}: cannot be read: {error}; {advice}") from error
    if found.dtype.kind != "f":
        raise ConfigError(
            f"{path}: expected floating-point numbers, and these are {found.dtype}; {advice}"
        )
    return found
