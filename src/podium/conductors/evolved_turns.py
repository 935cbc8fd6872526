"""A coordinator's description, and what is read from the turns of a run.

`coordinator.json` names its workers, its roles and its base model:

    description = read_description(Path("trained/evolved/coordinator"))
    description.check(pool)

Its prompts and choices are `podium_lab.evolution.coordinator`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

from pydantic import TypeAdapter, ValidationError

from podium._util.files import read_json
from podium.core.errors import ConfigError
from podium.core.pool import Pool
from podium.core.run import Round, StepRecord, TurnRole

FILE: Final = "coordinator.json"
PARAMETERS: Final = "parameters.npy"
FORMAT: Final = "podium-coordinator"
VERSION: Final = 2

ROLES: Final[tuple[TurnRole, ...]] = get_args(TurnRole)

TURNS: Final = 5
"""The most turns of a run, in the paper and by default."""

HiddenStateToken = Literal["penultimate", "last"]
"""The token of a transcript whose hidden state the head reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorDescription:
    """A coordinator without its numbers.

    `workers` are in the order of the head's rows, `models` theirs where known. `width` is that of
    the base's hidden states. `matrices` have their singular values scaled, `ranks` of them each.
    Without `roles` every turn is a worker's.
    """

    workers: tuple[str, ...]
    base: str
    width: int
    roles: tuple[TurnRole, ...] = ROLES
    hidden_state_token: HiddenStateToken = "penultimate"  # noqa: S105 - of a text
    matrices: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    models: tuple[str, ...] = ()
    turns: int = TURNS

    def __post_init__(self) -> None:
        if not self.workers or len(set(self.workers)) < len(self.workers):
            raise ConfigError(
                f"a coordinator chooses among {self.workers!r}; name one worker or more, each once"
            )
        if self.roles and "worker" not in self.roles:
            raise ConfigError(
                f"a coordinator gives the roles {', '.join(self.roles)}; without `worker` among "
                f"them, no run would have an answer"
            )
        if len(self.ranks) != len(self.matrices):
            raise ConfigError(
                f"a coordinator has {len(self.matrices)} matrices and {len(self.ranks)} ranks; "
                f"each matrix has a rank"
            )
        if len(self.models) not in (0, len(self.workers)):
            raise ConfigError(
                f"a coordinator has {len(self.workers)} workers and {len(self.models)} models; "
                f"each worker has a model or none of them has"
            )
        for name in ("width", "turns"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"a coordinator's {name} is {getattr(self, name)}; it must be 1 or more"
                )

    @property
    def rows(self) -> int:
        """Rows of the head: one for each worker, then one for each role."""
        return len(self.workers) + len(self.roles)

    @property
    def size(self) -> int:
        """Number of parameters: the scales of singular values, then the head."""
        return sum(self.ranks) + self.rows * self.width

    def changes(self, pool: Pool) -> str:
        """Describe how the pool differs from that of the training; the order does not count."""
        added = [name for name in pool.names if name not in self.workers]
        removed = [name for name in self.workers if name not in pool.names]
        trained = dict(zip(self.workers, self.models, strict=False))
        others = [
            f"{worker.name} (then {trained[worker.name]}, now {worker.model})"
            for worker in pool
            if trained.get(worker.name, worker.model) != worker.model
        ]
        parts = (("added", added), ("removed", removed), ("another model", others))
        return "; ".join(f"{word}: {', '.join(names)}" for word, names in parts if names)

    def shared_workers(self, pool: Pool) -> tuple[str, ...]:
        """Return the workers that training and pool share, by name and, where known, model."""
        there = {worker.name: worker.model for worker in pool}
        models = self.models or tuple(there.get(name, "") for name in self.workers)
        return tuple(
            name
            for name, model in zip(self.workers, models, strict=True)
            if there.get(name) == model
        )

    def check(self, pool: Pool) -> None:
        """Raise `ConfigError` if the pool is not that of the training."""
        if changes := self.changes(pool):
            raise ConfigError(
                f"the coordinator was trained with other workers than this pool has ({changes}); "
                f"train it again, or put the pool back"
            )

    def document(self) -> dict[str, Any]:
        values: dict[str, Any] = _adapter().dump_python(self, mode="json")
        return {"format": FORMAT, "version": VERSION, **values}


def read_description(directory: Path) -> CoordinatorDescription:
    """Read the description; `ConfigError` says what is wrong with it."""
    path = directory / FILE
    document = read_json(path, "name a directory that `podium lab evolve` wrote")
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
        raise ConfigError(f"{path}: this is no coordinator that `podium lab evolve` wrote")
    if (version := document.pop("version", None)) != VERSION:
        raise ConfigError(
            f"{path}: version {version!r} cannot be read, only {VERSION}; train it again with "
            f"this Podium"
        )
    try:
        return _adapter().validate_python(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{path}: {where}: {first['msg']}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


@cache
def _adapter() -> TypeAdapter[CoordinatorDescription]:
    return TypeAdapter(CoordinatorDescription)


_VERDICT: Final = re.compile(r"\W*(ACCEPT|REVISE)\b")


class Turn(NamedTuple):
    """A turn: its role and its step."""

    role: TurnRole
    step: StepRecord

    @property
    def is_done(self) -> bool:
        return self.step.status == "done"


def turns_of(rounds: Sequence[Round]) -> tuple[Turn, ...]:
    """Return the turns of these rounds; a round of another conductor is a worker's turn."""
    return tuple(
        Turn(round_.role or "worker", round_.steps[-1]) for round_ in rounds if round_.steps
    )


def is_accepted(turns: Sequence[Turn]) -> bool:
    """True if the last turn is a verifier's that accepts, in its first or last line."""
    if not turns or turns[-1].role != "verifier" or not turns[-1].is_done:
        return False
    lines = [line for line in turns[-1].step.reply.splitlines() if line.strip()]
    for line in (*lines[:1], *lines[-1:]):
        if verdict := _VERDICT.match(line):
            return verdict[1] == "ACCEPT"
    return False


def ends_accepted(rounds: Sequence[Round]) -> bool:
    """True if the answer was accepted in the end.

    A verifier in the last turn that a run may take accepts as well: no round is left in which the
    conductor could.
    """
    return bool(rounds) and (rounds[-1].accepts_answer or is_accepted(turns_of(rounds)))
