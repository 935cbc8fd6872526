"""A coordinator's numbers: one flat vector, and what it makes of a hidden state.

    coordinator = Coordinator.load(Path("trained/evolved/coordinator"))
    logits = coordinator.decide(await reader.read(transcript))

The vector holds the scales of singular values, matrix by matrix, then the rows of a bias-free
linear head: one for each worker, then one for each role. All zeros is the base as it is and a head
that prefers nobody. Needs numpy.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from podium._util.files import whole_directory, write_whole, writing
from podium.conductors.evolved.arrays import read_floats
from podium.conductors.evolved.description import FILE, PARAMETERS, Description, read_description
from podium.core.errors import ConfigError

Vector = NDArray[np.float32]


class Reader(Protocol):
    """Who reads a transcript: a frozen model, with the coordinator's scales on its matrices."""

    async def read(self, transcript: str) -> Vector:
        """The hidden state of the token that counts, at the end of the last layer."""
        ...


class Logits(NamedTuple):
    """How much each worker and each role is preferred, in the order of the description."""

    workers: Vector
    roles: Vector


@dataclass(frozen=True, slots=True, eq=False)
class Coordinator:
    """What is described, with numbers."""

    described: Description
    parameters: Vector

    def __post_init__(self) -> None:
        if self.parameters.shape != (self.described.size,):
            raise ConfigError(
                f"a coordinator of {len(self.described.workers)} workers and "
                f"{len(self.described.roles)} roles over {self.described.base} has "
                f"{self.described.size} numbers, and here they are of the shape "
                f"{self.parameters.shape}"
            )
        if not np.isfinite(self.parameters).all():
            raise ConfigError("a coordinator has numbers that are infinite or none at all")

    @classmethod
    def blank(cls, described: Description) -> Coordinator:
        """The one that prefers nobody, from which training begins."""
        return cls(described, np.zeros(described.size, np.float32))

    def with_parameters(self, parameters: NDArray[np.floating]) -> Coordinator:
        """The same with other numbers."""
        return replace(self, parameters=np.asarray(parameters, np.float32))

    @property
    def scales(self) -> tuple[Vector, ...]:
        """By how much the singular values of each matrix grow: 0.1 is by a tenth."""
        ends = np.cumsum(self.described.ranks, dtype=int)
        return tuple(
            self.parameters[end - rank : end]
            for end, rank in zip(ends, self.described.ranks, strict=True)
        )

    @property
    def head(self) -> Vector:
        """The rows of the head."""
        rows = self.parameters[sum(self.described.ranks) :]
        return rows.reshape(self.described.rows, self.described.width)

    def decide(self, hidden: Vector) -> Logits:
        """How much each worker and each role is preferred, given a hidden state."""
        preferred = self.head @ np.asarray(hidden, np.float32)
        count = len(self.described.workers)
        return Logits(preferred[:count], preferred[count:])

    @property
    def fingerprint(self) -> str:
        """Changes whenever the coordinator does."""
        digest = hashlib.sha256(json.dumps(self.described.document()).encode())
        digest.update(self.parameters.tobytes())
        return digest.hexdigest()[:8]

    def save(self, directory: Path) -> None:
        """Write the two files in place of the whole directory, all of it or none of it."""
        with writing(directory.parent, self.parameters.nbytes), whole_directory(directory) as draft:
            np.save(draft / PARAMETERS, self.parameters, allow_pickle=False)
            write_whole(draft / FILE, json.dumps(self.described.document(), indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Coordinator:
        """What was saved; an error says what is wrong with it."""
        described, path = read_description(directory), directory / PARAMETERS
        parameters = read_floats(path, "train it again")
        try:
            return cls(described, np.asarray(parameters, np.float32))
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error


def chosen(
    logits: Vector, allowed: NDArray[np.bool_], generator: np.random.Generator | None = None
) -> int:
    """The place of the most preferred that is allowed, or one drawn by how much each is."""
    if generator is None:
        return int(np.argmax(np.where(allowed, logits, -np.inf)))
    return int(generator.choice(len(logits), p=shares(logits, allowed)))


def shares(logits: Vector, allowed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """How much each is preferred among those that are allowed, as a distribution."""
    values = np.where(allowed, np.asarray(logits, np.float64), -np.inf)
    exponents = np.exp(values - values.max())
    return exponents / exponents.sum()  # type: ignore[no-any-return]
