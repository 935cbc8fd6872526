"""AdamW in numpy: fitting a router must not need torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from podium.conductors.routing.arrays import Array

FIRST: Final = 0.9
SECOND: Final = 0.999
SMALL: Final = 1e-8


class AdamW:
    """AdamW that updates arrays in place."""

    def __init__(self, rate: float, *, decay: float = 0.0) -> None:
        self._rate = rate
        self._decay = decay
        self._steps = 0
        self._means: list[Array] = []
        self._squares: list[Array] = []

    def update(self, arrays: Sequence[Array], gradients: Sequence[Array]) -> None:
        """Make one step."""
        if not self._means:
            self._means = [np.zeros_like(array) for array in arrays]
            self._squares = [np.zeros_like(array) for array in arrays]
        self._steps += 1
        for array, gradient, mean, square in zip(
            arrays, gradients, self._means, self._squares, strict=True
        ):
            mean += (1 - FIRST) * (gradient - mean)
            square += (1 - SECOND) * (gradient * gradient - square)
            steady = mean / (1 - FIRST**self._steps)
            spread = np.sqrt(square / (1 - SECOND**self._steps)) + SMALL
            array -= self._rate * (steady / spread + self._decay * array)
