"""Shapes, and operations on each other's results: what an étude asks, before it is put into words.

Every shape has one or more branches, a join if there are several, and perhaps a step after it:

    one           o              join-2        o─┐            join-step     o─┐
    chain-3       o─o─o                        o─o                          o─o─o
    chain-join    o─o─┐          chains-join   o─o─┐          join-3        three branches
                    o─o                        o─o─o

An operation and the one that it goes on from are never of the same family, so that no worker
can take two steps at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from hashlib import blake2b
from random import Random
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from podium_lab.etudes.skills import FAMILIES, ITEMS, SKILLS, Arguments, Family, Skill
from podium_lab.etudes.values import TERMINAL_KINDS, Kind, Value

Split = Literal["train", "test"]
SPLITS: Final[tuple[Split, ...]] = ("train", "test")


def split_of(key: str) -> Split:
    """Return the split of a key: one in five is for testing."""
    digest = blake2b(key.encode(), digest_size=4).digest()
    return "test" if int.from_bytes(digest) % 5 == 0 else "train"


class EtudeShape(StrEnum):
    """The shape of an étude, finer than the topology of its workflow."""

    ONE = "one"
    CHAIN_2 = "chain-2"
    CHAIN_3 = "chain-3"
    CHAIN_4 = "chain-4"
    CHAIN_5 = "chain-5"
    JOIN_2 = "join-2"
    JOIN_3 = "join-3"
    JOIN_STEP = "join-step"
    CHAIN_JOIN = "chain-join"
    CHAINS_JOIN = "chains-join"


class Skeleton(NamedTuple):
    """The lengths of the branches, and how many steps follow where they join."""

    branches: tuple[int, ...]
    after: int = 0


SKELETONS: Final = MappingProxyType(
    {
        EtudeShape.ONE: Skeleton((1,)),
        EtudeShape.CHAIN_2: Skeleton((2,)),
        EtudeShape.CHAIN_3: Skeleton((3,)),
        EtudeShape.CHAIN_4: Skeleton((4,)),
        EtudeShape.CHAIN_5: Skeleton((5,)),
        EtudeShape.JOIN_2: Skeleton((1, 1)),
        EtudeShape.JOIN_3: Skeleton((1, 1, 1)),
        EtudeShape.JOIN_STEP: Skeleton((1, 1), after=1),
        EtudeShape.CHAIN_JOIN: Skeleton((2, 1)),
        EtudeShape.CHAINS_JOIN: Skeleton((2, 2)),
    }
)

TEST_ONLY_SHAPES: Final = frozenset({EtudeShape.CHAIN_5})
DEFAULT_SHAPES: Final = MappingProxyType(
    {
        EtudeShape.ONE: 0.16,
        EtudeShape.CHAIN_2: 0.16,
        EtudeShape.CHAIN_3: 0.14,
        EtudeShape.CHAIN_4: 0.10,
        EtudeShape.JOIN_2: 0.16,
        EtudeShape.JOIN_3: 0.08,
        EtudeShape.JOIN_STEP: 0.07,
        EtudeShape.CHAIN_JOIN: 0.07,
        EtudeShape.CHAINS_JOIN: 0.06,
    }
)


MAX_COMPOSE_TRIES: Final = 5_000
"""Far more than it takes to find operations that fit; running out is a defect."""

MAX_LITERAL_DRAWS: Final = 200
"""Draws of literals for one operation. Sometimes no literal of the split fits, as when a number is
to be subtracted from 3."""

MAX_STEP_TRIES: Final = 6
MAX_BRANCH_TRIES: Final = 50
WEIGHTS: Final[Mapping[str, Mapping[Family, float]]] = MappingProxyType(
    {
        "leaf": dict(zip(FAMILIES, (1.4, 1.15, 0.65, 0.95, 0.95, 1.0, 1.35), strict=True)),
        "step": dict(zip(FAMILIES, (1.7, 0.9, 0.11, 7.0, 2.6, 1.2, 2.8), strict=True)),
        "join": dict(zip(FAMILIES, (1.0, 1.0, 0.7, 1.0, 0.0, 1.0, 1.0), strict=True)),
    }
)
"""How eagerly each family is chosen where several fit, so that all are used about equally."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A skill at work. `sources` says for each argument which earlier operation it is the answer
    of, or None where it is literal. `reads` are the operations whose answers it needs, `split_key`
    is the key by which the arguments belong to one split, where they do."""

    skill: Skill
    arguments: Arguments
    sources: tuple[int | None, ...]
    answer: Value
    reads: tuple[int, ...] = field(init=False)
    split_key: str | None = field(init=False)

    def __post_init__(self) -> None:
        reads = sorted(source for source in self.sources if source is not None)
        object.__setattr__(self, "reads", tuple(reads))
        object.__setattr__(self, "split_key", split_key_of(self.skill, self.arguments))


class _Candidate(NamedTuple):
    """A skill, and the place in which it takes the result before it (None at a beginning)."""

    skill: Skill
    position: int | None


class _Demand(NamedTuple):
    """The allowed results of a chain: of these kinds, not from that family, and from that skill if
    given. `target` is where a joining skill takes the result."""

    kinds: frozenset[Kind]
    other_than: Family | None = None
    skill: Skill | None = None
    target: _Candidate | None = None

    def accepts(self, value: Value) -> bool:
        if self.target is None:
            return value.kind in self.kinds
        skill, position = self.target
        return position is not None and skill.accepts(position, value)


_Choice = Mapping[Family, tuple[_Candidate, ...]]

ALL_KINDS: Final = frozenset(Kind)
CONTINUABLE_KINDS: Final = ALL_KINDS - TERMINAL_KINDS


def compose_operations(
    rng: Random, split: Split, shape: EtudeShape, *, last: Skill | None = None
) -> tuple[Operation, ...]:
    """Compose random operations of that shape, in executable order.

    With `last`, the last operation uses that skill, which must be able to end such a shape.
    """
    operations = try_operations(rng, split, shape, last=last, tries=MAX_COMPOSE_TRIES)
    assert operations is not None, f"nothing of shape {shape} was found"
    return operations


def try_operations(
    rng: Random, split: Split, shape: EtudeShape, *, last: Skill | None, tries: int
) -> tuple[Operation, ...] | None:
    """Compose operations, or return None after that many tries.

    The joining skill is chosen once for all tries, or skills with rare inputs would be rare.
    """
    skeleton = SKELETONS[shape]
    joining = None
    if len(skeleton.branches) > 1:
        joining = (not skeleton.after and last) or _joining_skill(rng, skeleton, last)
        if joining is None:
            return None
    branches, after = skeleton
    for _ in range(tries):
        if len(set(branches)) > 1:
            branches = tuple(rng.sample(skeleton.branches, len(branches)))
        operations = _Attempt(rng, split, joining, last).compose(branches, after)
        if operations and (len(operations) == 1 or split_of(signature(operations)) == split):
            return operations
    return None


def split_key_of(skill: Skill, arguments: Arguments) -> str | None:
    """Return the key of the arguments in any order; None for a table to be memorised."""
    if skill.split_key is None:
        return None
    return f"{skill.split_key}:{','.join(sorted([argument.text for argument in arguments]))}"


def signature(operations: Sequence[Operation]) -> str:
    """Return the operations without any wording."""
    return ";".join(
        f"{operation.skill.name}({','.join(value.text for value in operation.arguments)})"
        f"{list(operation.sources)}"
        for operation in operations
    )


def _joining_skill(rng: Random, skeleton: Skeleton, last: Skill | None) -> Skill | None:
    """Choose a skill for the results of the branches, from which the last skill can continue."""
    kinds = CONTINUABLE_KINDS if skeleton.after else ALL_KINDS
    if last is not None:
        kinds &= frozenset().union(*(last.kinds(position) for position in last.refers))
    demand = _Demand(kinds, other_than=last.family if last else None)
    fitting = _first_candidates(demand, len(skeleton.branches))
    if not fitting:
        return None
    return rng.choice(fitting[_draw_family(rng, tuple(fitting), "join")]).skill


class _Attempt:
    """One try at operations of a shape; it gives up where nothing fits."""

    def __init__(
        self, rng: Random, split: Split, joining: Skill | None, last: Skill | None
    ) -> None:
        self._rng = rng
        self._split = split
        self._joining = joining
        self._end = _Demand(ALL_KINDS, skill=last)
        self._operations: list[Operation] = []

    def compose(self, branches: tuple[int, ...], after: int) -> tuple[Operation, ...] | None:
        if self._joining is None:
            done = self._chain(None, branches[0], self._end)
        else:
            done = self._join(self._joining, branches)
            done = done and self._chain(self._operations[-1], after, self._end)
        return tuple(self._operations) if done else None

    def _chain(self, before: Operation | None, length: int, demand: _Demand) -> bool:
        """Append `length` operations, each on the result of the one before; without one before, the
        first takes literals."""
        for left in reversed(range(length)):
            wanted = _demand_before(demand, left)
            following = _demand_before(demand, left - 1) if left else None
            before = self._step(before, wanted, following)
            if before is None:
                return False
        return True

    def _step(
        self, before: Operation | None, wanted: _Demand, following: _Demand | None
    ) -> Operation | None:
        """Append one operation whose result can lead to the following demand. It is retried by
        itself, or every misfit would cost the whole chain."""
        for _ in range(MAX_STEP_TRIES):
            if before is None:
                role, fitting = "leaf", _first_candidates(wanted)
            else:
                role, fitting = "step", _next_candidates(before.answer, before.skill.family, wanted)
            if not fitting:
                return None
            use = self._rng.choice(fitting[_draw_family(self._rng, tuple(fitting), role)])
            if not self._perform(use, before):
                return None
            found = self._operations[-1]
            if wanted.accepts(found.answer) and (
                following is None or _next_candidates(found.answer, found.skill.family, following)
            ):
                return found
            self._operations.pop()
        return None

    def _perform(self, use: _Candidate, before: Operation | None) -> bool:
        skill, position = use
        given = {} if before is None or position is None else {position: before.answer}
        source = len(self._operations) - 1
        for _ in range(MAX_LITERAL_DRAWS):
            arguments, answer = skill.draw_solved(self._rng, given)
            if answer is not None and self._may_use(skill, arguments):
                sources = tuple(source if n in given else None for n in range(len(arguments)))
                self._operations.append(Operation(skill, arguments, sources, answer))
                return True
        return False

    def _join(self, skill: Skill, branches: tuple[int, ...]) -> bool:
        positions = list(range(len(branches)))
        if skill.slots != (ITEMS,):
            self._rng.shuffle(positions)
        source_of: dict[int, int] = {}
        for position, length in zip(positions, branches, strict=True):
            if not self._branch(skill, position, length):
                return False
            source_of[position] = len(self._operations) - 1
        sources = tuple(source_of[position] for position in sorted(positions))
        arguments = tuple(self._operations[source].answer for source in sources)
        answer = skill.solve(arguments) if len(set(arguments)) == len(arguments) else None
        if answer is None or not self._may_use(skill, arguments):
            return False
        self._operations.append(Operation(skill, arguments, sources, answer))
        return True

    def _branch(self, skill: Skill, position: int, length: int) -> bool:
        """Append a chain whose result fits that position of the skill. It is retried by itself, or
        every misfit would cost the other branches too."""
        begun = len(self._operations)
        demand = _Demand(
            skill.kinds(position), other_than=skill.family, target=_Candidate(skill, position)
        )
        for _ in range(MAX_BRANCH_TRIES):
            if self._chain(None, length, demand):
                return True
            del self._operations[begun:]
        return False

    def _may_use(self, skill: Skill, arguments: Arguments) -> bool:
        key = split_key_of(skill, arguments)
        return key is None or split_of(key) == self._split


def _draw_family(rng: Random, families: tuple[Family, ...], role: str) -> Family:
    weights = WEIGHTS[role]
    point = rng.random() * sum([weights[family] for family in families])
    for family in families:
        point -= weights[family]
        if point < 0:
            return family
    return families[-1]


@cache
def _demand_before(demand: _Demand, left: int) -> _Demand:
    """Return the demand on an operation that is `left` operations before the end of its chain."""
    if left == 0:
        return demand
    if left > 1 or demand.skill is None:
        return _Demand(CONTINUABLE_KINDS)
    taken = frozenset().union(*(demand.skill.kinds(position) for position in demand.skill.refers))
    return _Demand(CONTINUABLE_KINDS & taken, other_than=demand.skill.family)


@cache
def _first_candidates(demand: _Demand, joined: int = 0) -> _Choice:
    """Return the candidates that may begin a chain, or take that many results at once."""
    candidates = [
        _Candidate(skill, None)
        for skill in SKILLS.values()
        if (joined in skill.joins if joined else skill.leaf)
    ]
    return _by_family(candidates, demand)


@cache
def _next_candidates(value: Value, family: Family, demand: _Demand) -> _Choice:
    """Return the candidates that may follow a result of that family and meet the demand."""
    candidates = [
        _Candidate(skill, position)
        for skill in SKILLS.values()
        for position in skill.refers
        if skill.family is not family and skill.accepts(position, value)
    ]
    return _by_family(candidates, demand)


def _by_family(candidates: Sequence[_Candidate], demand: _Demand) -> _Choice:
    fitting = [
        use
        for use in candidates
        if use.skill.family is not demand.other_than
        and (demand.skill is None or use.skill is demand.skill)
        and use.skill.results & demand.kinds
    ]
    return {
        family: tuple(use for use in fitting if use.skill.family is family)
        for family in FAMILIES
        if any(use.skill.family is family for use in fitting)
    }
