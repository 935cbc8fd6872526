"""Tasks of reasoning-gym: any of its generators, such as `reasoning-gym:countdown`.

The package makes the questions and has the last word on answers: an answer is right when its
generator gives it the full score. Some generators evaluate what they are given to score as an
expression, so that is done in the sandbox, not here.

The package is an extra of its own, `gym`: one of its dependencies has to be compiled.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from podium.core.errors import ConfigError
from podium.core.task import Task
from podium.tasks.answers import LONGEST_ANSWER, extract_answer, nearest, render_prompt
from podium.tasks.sources import import_optional
from podium.workers.sandbox import ProgramLimits, require_sandbox, run_program

GYM: Final = "reasoning-gym"
"""The prefix of these suites' names."""

_COMPOSED: Final = "composite"
"""A mixture of other generators, which cannot be made by its name alone."""

_LIMITS: Final = ProgramLimits(cpu_seconds=30, wall_seconds=90.0, memory_bytes=4 * 1024**3)
"""Loading the package alone takes more than a second of processor time."""

_SCORER: Final = """\
import base64, json, pickle, sys
asked = json.loads(sys.stdin.read())
import reasoning_gym
dataset = reasoning_gym.create_dataset(asked["generator"], seed=asked["seed"], size=1)
entry = pickle.loads(base64.b64decode(asked["entry"]))
score = dataset.score_answer(answer=asked["answer"], entry=entry)
print("\\n" + ("full" if score >= 0.999 else "less"))
"""
_FULL: Final = "full"


@dataclass(frozen=True, slots=True)
class GymGrader:
    """Accepts a reply with the generator's full score.

    `entry` is the generator's data, None if it only compares with its answer.
    """

    generator: str
    seed: int
    answer: str
    entry: bytes | None

    async def __call__(self, answer: str) -> bool:
        """Score a reply in the sandbox; a failure or a timeout is wrong."""
        text = extract_answer(answer, tagged=True)
        if not text or len(text) > LONGEST_ANSWER:
            return False
        if text == self.answer or self.entry is None:
            return text == self.answer
        asked = {
            "generator": self.generator,
            "seed": self.seed,
            "entry": base64.b64encode(self.entry).decode(),
            "answer": text,
        }
        async with aclosing(run_program(_SCORER, [json.dumps(asked)], limits=_LIMITS)) as outcomes:
            async for outcome in outcomes:
                return outcome.problem is None and outcome.output.split()[-1:] == [_FULL]
        return False


def gym_suite(generator: str, n: int, seed: int = 0) -> list[Task]:
    """Generate tasks from a seed."""
    library = import_optional("reasoning_gym", f"the suite {GYM}:{generator}", "gym")
    _require_generator(generator)
    made = library.create_dataset(generator, seed=seed, size=n)
    compares = type(made).score_answer is library.dataset.ProceduralDataset.score_answer
    if not compares:
        require_sandbox()
    return [_task(generator, seed, number, made[number], compares) for number in range(n)]


def _task(generator: str, seed: int, number: int, entry: Mapping[str, Any], compares: bool) -> Task:
    answer = "" if entry["answer"] is None else str(entry["answer"]).strip()
    return Task(
        id=f"{GYM}/{generator}/{seed}/{number}",
        question=render_prompt("generated", question=str(entry["question"]).strip()),
        grader=GymGrader(generator, seed, answer, None if compares else pickle.dumps(dict(entry))),
        kind=generator,
        answer=answer,
    )


def _require_generator(name: str) -> None:
    factory = import_optional("reasoning_gym.factory", f"the suite {GYM}:{name}", "gym")
    known = sorted(set(factory.DATASETS) - {_COMPOSED})
    if name in known:
        return
    raise ConfigError(f"{GYM} has no generator {name!r}; {nearest(name, known, GYM + ':{}')}")
