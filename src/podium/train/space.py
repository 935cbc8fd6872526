"""The space that a search looks through: the numbers that it is free to choose, and the parameters
of a coordinator that they stand for.

In the paper every number of the head is free. But the more hidden states have in common, the more
does a candidate whose numbers are drawn one by one prefer the same whatever was asked. With
`directions` a row of the head is a sum of the principal directions of such states, and free are
only its shares in them, each as strong as the others. The head stays what it was, a linear one
without a bias; there is less of it to find. Needs numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from podium.conductors.evolved.arrays import read_floats
from podium.conductors.evolved.coordinator import Vector
from podium.conductors.evolved.description import Description
from podium.core.errors import ConfigError
from podium.train.checkpoints import ANEW

FILE: Final = "directions.npy"
"""Where directions are kept, in the directory of a checkpoint."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """What is searched for the coordinator that is described; `directions` are the rows of a
    matrix, and without them every number is free."""

    described: Description
    directions: Matrix | None = None

    @property
    def size(self) -> int:
        """How many numbers are free."""
        if self.directions is None:
            return self.described.size
        return self.described.size_with(len(self.directions))

    def parameters(self, chosen: NDArray[np.float64]) -> NDArray[np.float64]:
        """The coordinator's parameters that these numbers stand for."""
        if self.directions is None:
            return chosen
        scales = sum(self.described.ranks)
        head = chosen[scales:].reshape(self.described.rows, -1) @ self.directions
        return np.concatenate([chosen[:scales], head.ravel()])

    def save(self, directory: Path) -> None:
        """Keep the directions, where there are any."""
        if self.directions is not None:
            np.save(directory / FILE, self.directions, allow_pickle=False)


def read_space(described: Description, count: int, directory: Path) -> Space:
    """What was kept in that directory, for a coordinator whose search has so many directions."""
    path = directory / FILE
    found = read_floats(path, ANEW)
    expected = (count, described.width)
    if found.shape != expected:
        raise ConfigError(
            f"{path}: expected an array of the shape {expected}, as evolve.directions = {count} "
            f"over {described.base} has it, and this one's is {found.shape}; {ANEW}"
        )
    if not np.isfinite(found).all():
        raise ConfigError(f"{path}: some numbers are infinite or none at all; {ANEW}")
    return Space(described, found.astype(np.float64))


def principal_directions(states: Sequence[Vector], count: int) -> Matrix:
    """The directions along which these states are longest, scaled so that the mean square of the
    states along each of them is 1."""
    seen = np.array(states, np.float64)
    if not np.isfinite(seen).all():
        raise ConfigError(
            f"of the {len(states)} hidden states that were looked at some have numbers that are "
            f"infinite or none at all, so no directions can be found; have another model.base read"
        )
    lengths, directions = np.linalg.svd(seen / np.sqrt(len(states)), full_matrices=False)[1:]
    found = int(np.count_nonzero(lengths > lengths[0] * 1e-6))
    if found < count:
        raise ConfigError(
            f"evolve.directions = {count}, and the {len(states)} hidden states that were looked at "
            f"differ along {found}; lower it, or have more questions"
        )
    lengths, directions = lengths[:count], directions[:count]
    strongest = np.abs(directions).argmax(axis=1)
    signs = np.sign(directions[np.arange(count), strongest])  # the same on every machine
    scaled: Matrix = (signs / lengths)[:, None] * directions
    return scaled
