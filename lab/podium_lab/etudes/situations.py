"""What a conductor practises on when it learns from reward: études over pools that are never twice
the same, now and then an everyday question, and where it is to learn when to accept, what a first
round has left behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import NamedTuple

from podium.conductors import plan
from podium.core.conductor import PlanningContext
from podium_lab.etudes.etude import NESTED_SHARE, Etude, make_etude
from podium_lab.etudes.everyday import everyday
from podium_lab.etudes.later import FLAKY, later_situations
from podium_lab.etudes.openings import DROP, EVERYDAY, ORDER, SAME_MODELS
from podium_lab.etudes.pools import GENERALIST, pool_profiles
from podium_lab.etudes.shapes import USUAL, EtudeShape


class Practice(NamedTuple):
    """What is asked, an étude or an everyday question in its own words, and the situation in
    which a plan for it is to be written."""

    asked: Etude | str
    context: PlanningContext


def training_situations(
    seed: int,
    shapes: Mapping[EtudeShape, float] = USUAL,
    models: Mapping[str, str] = SAME_MODELS,
    *,
    everyday_share: float = EVERYDAY,
    later_share: float = 0.0,
    nested_share: float = NESTED_SHARE,
    drop: float = DROP,
    keep_needed: bool = True,
    flaky_share: float = FLAKY,
    flaky_seed: int = 0,
    order: plan.Order = ORDER,
) -> Iterator[Practice]:
    """Situation after situation, of shapes as frequent as their weights say.

    Workers are described at random and shuffled, and each is left out with the chance `drop`;
    those that are needed only where `keep_needed` is off. `later_share` of all situations are
    second rounds, whose first was carried out by workers that forget as `FlakyWorker` does with
    `flaky_share` and `flaky_seed`.
    """
    rng = Random(f"{seed}/situations")  # noqa: S311 - repeatable, not secret
    names, weights = list(shapes), list(shapes.values())
    later = later_situations(
        rng,
        "train",
        models,
        shapes=shapes,
        nested_share=nested_share,
        flaky_share=flaky_share,
        flaky_seed=flaky_seed,
        drop=drop,
        order=order,
    )
    while True:
        point = rng.random()
        if point < later_share:
            etude, context, _ = next(later)
            yield Practice(etude, context)
            continue
        asked: Etude | str
        if point < later_share + everyday_share:
            asked = question = rng.choice(everyday("train"))
            needed: tuple[str, ...] = (GENERALIST,)
        else:
            (shape,) = rng.choices(names, weights)
            asked = make_etude(rng, "train", shape, nested_share=nested_share)
            question, needed = asked.question, asked.families
        pool = pool_profiles(rng, models, keep=needed if keep_needed else (), drop=drop)
        yield Practice(asked, PlanningContext(question=question, pool=pool))
