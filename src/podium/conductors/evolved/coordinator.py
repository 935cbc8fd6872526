"""A coordinator's numbers: one flat vector over a hidden state.

    coordinator = Coordinator.load(Path("trained/evolved/coordinator"))
    logits = coordinator.decide(await reader.read(transcript))

The vector holds the scales of singular values, matrix by matrix, then the rows of a bias-free
linear head: one for each worker, then one for each role. All zeros is the unchanged base and a head
without preferences.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from tokenize import TokenError
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from podium._util.files import explain_write_errors, replace_directory, write_atomically
from podium.conductors.evolved.description import FILE, PARAMETERS, Description, read_description
from podium.core.errors import ConfigError

DAMAGED: Final = (OSError, ValueError, EOFError, SyntaxError, TokenError, MemoryError)
"""Errors of numpy on a damaged file: its header is a Python literal with a size."""


def read_floats(path: Path, advice: str) -> NDArray[np.floating[Any]]:
    """Read floating-point numbers without pickles; `ConfigError` ends with the advice."""
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


Vector = NDArray[np.float32]


class Reader(Protocol):
    """Reads a transcript: a frozen model with the coordinator's scales on its matrices."""

    async def read(self, transcript: str) -> Vector:
        """Return the last layer's hidden state of the coordinator's token."""
        ...


class Logits(NamedTuple):
    """Logits of workers and roles, in the order of the description."""

    workers: Vector
    roles: Vector


@dataclass(frozen=True, slots=True, eq=False)
class Coordinator:
    """A description with its numbers."""

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
        """Return the coordinator without preferences, from which training starts."""
        return cls(described, np.zeros(described.size, np.float32))

    def with_parameters(self, parameters: NDArray[np.floating]) -> Coordinator:
        """Return the coordinator with other numbers."""
        return replace(self, parameters=np.asarray(parameters, np.float32))

    @property
    def scales(self) -> tuple[Vector, ...]:
        """Relative growth of the singular values of each matrix: 0.1 is by a tenth."""
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
        """Return the logits of a hidden state."""
        preferred = self.head @ np.asarray(hidden, np.float32)
        count = len(self.described.workers)
        return Logits(preferred[:count], preferred[count:])

    @property
    def fingerprint(self) -> str:
        """Changes with the coordinator."""
        digest = hashlib.sha256(json.dumps(self.described.document()).encode())
        digest.update(self.parameters.tobytes())
        return digest.hexdigest()[:8]

    def save(self, directory: Path) -> None:
        """Replace the directory atomically by the two files."""
        with (
            explain_write_errors(directory.parent, self.parameters.nbytes),
            replace_directory(directory) as draft,
        ):
            np.save(draft / PARAMETERS, self.parameters, allow_pickle=False)
            write_atomically(draft / FILE, json.dumps(self.described.document(), indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Coordinator:
        """Load a coordinator; `ConfigError` says what is wrong with it."""
        described, path = read_description(directory), directory / PARAMETERS
        parameters = read_floats(path, "train it again")
        try:
            return cls(described, np.asarray(parameters, np.float32))
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error


def chosen(
    logits: Vector, allowed: NDArray[np.bool_], generator: np.random.Generator | None = None
) -> int:
    """Return the place of the highest allowed logit, or sample one with the generator."""
    if generator is None:
        return int(np.argmax(np.where(allowed, logits, -np.inf)))
    return int(generator.choice(len(logits), p=shares(logits, allowed)))


def shares(logits: Vector, allowed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the softmax over the allowed logits."""
    values = np.where(allowed, np.asarray(logits, np.float64), -np.inf)
    exponents = np.exp(values - values.max())
    return exponents / exponents.sum()  # type: ignore[no-any-return]
