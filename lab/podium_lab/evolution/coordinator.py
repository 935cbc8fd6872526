"""A coordinator, one flat vector over a hidden state, and the conductor that it is.

    coordinator = Coordinator.load(Path("trained/evolved/coordinator"))
    logits = coordinator.decide(await reader.read(transcript, coordinator.scales))

The vector holds the scales of singular values, matrix by matrix, then the rows of a bias-free
linear head: one for each worker, then one for each role. All zeros is the unchanged base and a head
without preferences. A reply cannot name a worker, a subtask or an access: only whether a verifier
accepts is read from it, and which role a thinker suggests.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from tokenize import TokenError
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from podium._util.files import explain_write_errors, replace_directory, write_atomically
from podium.conductors.builtin import evolved_conductor_name
from podium.conductors.evolved_turns import (
    FILE,
    PARAMETERS,
    ROLES,
    CoordinatorDescription,
    Turn,
    is_accepted,
    read_description,
    turns_of,
)
from podium.core.conductor import Conductor, Plan, PlanningContext
from podium.core.errors import ConfigError
from podium.core.run import TurnRole
from podium.core.worker import Caller
from podium.core.workflow import Step, Workflow

PROMPT_FILES: Final = (*(f"turn_{role}.txt" for role in ROLES), "turn_withheld.txt")
"""The files of the roles' prompts."""

_SUGGESTION: Final = re.compile(r"\W*NEXT(?:\s+ROLE)?\W+(THINKER|WORKER|VERIFIER)\b", re.IGNORECASE)

READ_ERRORS: Final = (OSError, ValueError, EOFError, SyntaxError, TokenError, MemoryError)
"""Errors of numpy on a damaged file: its header is a Python literal with a size."""


def read_floats(path: Path) -> NDArray[np.floating[Any]]:
    """Read floating-point numbers without pickles; `ConfigError` says what is wrong."""
    try:
        with path.open("rb") as file:
            found: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    except READ_ERRORS as error:
        raise ConfigError(f"{path}: cannot be read: {error}; train it again") from error
    if found.dtype.kind != "f":
        raise ConfigError(
            f"{path}: expected floating-point numbers, and these are {found.dtype}; train it again"
        )
    return found


Vector = NDArray[np.float32]


Scales = tuple[tuple[str, tuple[float, ...]], ...]
"""Matrices with the relative growth of each singular value: 0.1 adds a tenth."""


class StateReader(Protocol):
    """Reads a transcript with a model that has these scales on its matrices."""

    async def read(self, transcript: str, scales: Scales = ()) -> Vector: ...


class Logits(NamedTuple):
    """Logits of workers and roles, in the order of the description."""

    workers: Vector
    roles: Vector


@dataclass(frozen=True, slots=True, eq=False)
class Coordinator:
    """A description with its numbers."""

    description: CoordinatorDescription
    parameters: Vector

    def __post_init__(self) -> None:
        if self.parameters.shape != (self.description.size,):
            raise ConfigError(
                f"a coordinator of {len(self.description.workers)} workers and "
                f"{len(self.description.roles)} roles over {self.description.base} has "
                f"{self.description.size} numbers, and here they are of the shape "
                f"{self.parameters.shape}"
            )
        if not np.isfinite(self.parameters).all():
            raise ConfigError("a coordinator has numbers that are infinite or none at all")

    @classmethod
    def blank(cls, description: CoordinatorDescription) -> Coordinator:
        return cls(description, np.zeros(description.size, np.float32))

    def with_parameters(self, parameters: NDArray[np.floating]) -> Coordinator:
        return replace(self, parameters=np.asarray(parameters, np.float32))

    @property
    def scales(self) -> Scales:
        described = self.description
        *parts, _ = np.split(self.parameters, np.cumsum(described.ranks, dtype=int))
        return tuple(zip(described.matrices, (tuple(part.tolist()) for part in parts), strict=True))

    @property
    def head(self) -> Vector:
        rows = self.parameters[sum(self.description.ranks) :]
        return rows.reshape(self.description.rows, self.description.width)

    def decide(self, hidden: Vector) -> Logits:
        preferred = self.head @ np.asarray(hidden, np.float32)
        count = len(self.description.workers)
        return Logits(preferred[:count], preferred[count:])

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(json.dumps(self.description.document()).encode())
        digest.update(self.parameters.tobytes())
        return digest.hexdigest()[:8]

    def save(self, directory: Path) -> None:
        with (
            explain_write_errors(directory.parent, self.parameters.nbytes),
            replace_directory(directory) as draft,
        ):
            np.save(draft / PARAMETERS, self.parameters, allow_pickle=False)
            write_atomically(draft / FILE, json.dumps(self.description.document(), indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Coordinator:
        description, path = read_description(directory), directory / PARAMETERS
        parameters = read_floats(path)
        try:
            return cls(description, np.asarray(parameters, np.float32))
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error


def choose_index(
    logits: Vector, allowed: NDArray[np.bool_], generator: np.random.Generator | None = None
) -> int:
    """Return the index of the highest allowed logit, or sample one with the generator."""
    if generator is None:
        return int(np.argmax(np.where(allowed, logits, -np.inf)))
    return int(generator.choice(len(logits), p=shares(logits, allowed)))


def shares(logits: Vector, allowed: NDArray[np.bool_]) -> NDArray[np.float64]:
    values = np.where(allowed, np.asarray(logits, np.float64), -np.inf)
    exponents = np.exp(values - values.max())
    return exponents / exponents.sum()  # type: ignore[no-any-return]


class EvolvedConductor(Conductor):
    """Leads turn by turn, until a verifier accepts or no round is left.

    The preferred worker and role are taken; with a `generator` they are sampled, as in training.
    Deviations from the paper, where a run would end without
    an answer: no verifier before a worker has answered; the last turn is a worker's if none has
    answered; a worker that failed in this run is passed over while there are others.
    """

    is_trained = True
    takes_turns = True

    def __init__(
        self,
        coordinator: Coordinator,
        reader: StateReader,
        *,
        generator: np.random.Generator | None = None,
    ) -> None:
        self.name = evolved_conductor_name(coordinator.fingerprint)
        self.local_model: StateReader = reader
        self.prompt_hash = prompt_hash()
        self._coordinator = coordinator
        self._generator = generator

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        turns = turns_of(context.rounds)
        if is_accepted(turns) and context.answer is not None:
            return Plan(None)
        workers = self._workers(context, turns)
        hidden = await self.local_model.read(transcript(context), self._coordinator.scales)
        logits = self._coordinator.decide(hidden)
        description = self._coordinator.description
        worker = description.workers[choose_index(logits.workers, workers, self._generator)]
        role, why = self._role(logits.roles, context, turns)
        preferences = _format_shares(description.workers, shares(logits.workers, workers))
        is_first = not any(turn.is_done for turn in turns)
        step = Step(worker, subtask(role, context, is_first=is_first), () if is_first else "all")
        return Plan(
            Workflow((step,)),
            text=f"{worker} as {role}\n{preferences}\n{why}",
            role=role,
        )

    def _workers(self, context: PlanningContext, turns: Sequence[Turn]) -> NDArray[np.bool_]:
        """Return the mask of workers to choose from: those of the pool that have not failed."""
        description = self._coordinator.description
        known, shared = description.workers, description.shared_workers(context.pool)
        failed = {turn.step.worker for turn in turns if turn.step.status == "failed"}
        present = np.array([name in shared for name in known])
        if not present.any():
            raise ConfigError(
                f"the coordinator chooses among {', '.join(known)}, and this run may use none of "
                f"them; exclude fewer workers"
            )
        able = present & np.array([name not in failed for name in known])
        return able if able.any() else present

    def _role(
        self, logits: Vector, context: PlanningContext, turns: Sequence[Turn]
    ) -> tuple[TurnRole, str]:
        """Return the role of the next turn, and the reason for it."""
        roles = self._coordinator.description.roles
        has_answer = any(turn.role == "worker" and turn.is_done for turn in turns)
        if not roles:
            return "worker", "there are no roles"
        if not has_answer and context.rounds_left <= 1:
            return "worker", "this is the last turn, and there is no answer yet"
        allowed = np.array([has_answer or role != "verifier" for role in roles])
        wanted = suggested_role(turns)
        if wanted in roles and allowed[roles.index(wanted)]:
            return wanted, "the thinker suggested it"
        role = roles[choose_index(logits, allowed, self._generator)]
        return role, _format_shares(roles, shares(logits, allowed))


def _format_shares(names: Sequence[str], parts: NDArray[np.float64]) -> str:
    return ", ".join(f"{name} {part:.0%}" for name, part in zip(names, parts, strict=True))


def transcript(context: PlanningContext) -> str:
    """Return the transcript: a line `role: content` for each message, the question and each reply.

    There is no chat template around it, as in the paper: a head reads texts in the form of its
    training.
    """
    said: list[tuple[str, str]] = [(turn.role, turn.text) for turn in context.history if turn.text]
    said.append(("user", context.question))
    said += [(turn.role, turn.step.reply) for turn in turns_of(context.rounds) if turn.is_done]
    if context.replan_reason:
        said.append(("guardrail", context.replan_reason))
    return "".join(f"{role}: {content}\n" for role, content in said)


def suggested_role(turns: Sequence[Turn]) -> TurnRole | None:
    """Return the role that the last turn's thinker suggests in its last line, if any."""
    if not turns or turns[-1].role != "thinker" or not turns[-1].is_done:
        return None
    lines = [line for line in turns[-1].step.reply.splitlines() if line.strip()]
    found = _SUGGESTION.match(lines[-1]) if lines else None
    return next((role for role in ROLES if found and role == found[1].casefold()), None)


def subtask(role: TurnRole, context: PlanningContext, *, is_first: bool) -> str:
    """Return the subtask of a role.

    The first worker, and a worker that does not see the question, get the question alone; in other
    roles the question is added where the pool does not share it.
    """
    is_shared = context.pool.share_question
    if role == "worker" and (is_first or not is_shared):
        return context.question
    words = _text(f"turn_{role}.txt")
    if is_shared:
        return words
    return f"{words}\n\n{_text('turn_withheld.txt')}\n{context.question}"


@cache
def prompt_hash() -> str:
    texts = "\0".join(f"{name}\0{_text(name)}" for name in PROMPT_FILES)
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


@cache
def _text(name: str) -> str:
    return resources.files(__package__).joinpath("prompts", name).read_text("utf-8").strip()
