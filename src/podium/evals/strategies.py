"""Strategies by name: which there are, what each needs, and what makes it.

How a strategy answers is in the modules beside this one (`baselines`, `conducting`); measuring
strategies over cases is `evaluation`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from podium.config.problems import nearest
from podium.errors import UsageError
from podium.evals.baselines import (
    DRAWN,
    FORMS,
    Form,
    majority,
    mixture_of_agents,
    reflection,
    single,
)
from podium.evals.case import Case
from podium.evals.conducting import conducted, ideal, random_plans
from podium.evals.ensemble import Ensemble
from podium.evals.stage import Strategy
from podium.pool import CONDUCTOR_PROVIDER

PLANNED: Final = ("conductor", "recursion", "untrained")
"""Strategies that need the conductor's model."""

PLANNING: Final = ("conductor", "untrained", "random")
"""Strategies that begin with a plan of their own, which can be graded as it is."""

STRATEGIES: Final = (
    "conductor",
    "recursion",
    "ideal",
    "best-single",
    "moa",
    "reflection",
    "majority",
    "random",
    "untrained",
)
"""The strategies by name; `single:W` and `reflection:W` are those of the worker W alone, and
`untrained:P` asks with the prompt P."""


def check_strategy(name: str, ensemble: Ensemble, cases: Sequence[Case]) -> None:
    """Refuse a strategy that there is not, before anything is asked."""
    singles = single_workers(ensemble)
    family, colon, which = name.partition(":")
    if colon and family in ("single", "reflection"):
        if which not in singles:
            raise UsageError(
                f"the strategy {name!r} names no worker of this pool; {nearest(which, singles)}"
            )
    elif family == "untrained" and not ensemble.untrained:
        raise UsageError(
            "the strategy 'untrained' needs a conductor that is a model; set kind = \"model\""
        )
    elif colon and family == "untrained":
        if which not in ensemble.untrained:
            raise UsageError(
                f"the strategy {name!r} names no prompt; {nearest(which, ensemble.untrained)}"
            )
    elif name == "ideal" and any(case.ideal is None for case in cases):
        raise UsageError("the strategy 'ideal' needs ideal plans, which only the études have")
    elif name not in STRATEGIES:
        raise UsageError(
            f"there is no strategy {name!r}; "
            f"{nearest(name, (*STRATEGIES, *(f'single:{w}' for w in singles)))}"
        )
    if family not in PLANNING and any(case.task.plan_grader for case in cases):
        raise UsageError(
            f"these tasks grade plans, and {name!r} writes none that could be graded; "
            f"use {', '.join(PLANNING[:-1])} or {PLANNING[-1]}"
        )


async def candidates(
    name: str, ensemble: Ensemble, best_alone: Callable[[], Awaitable[str]]
) -> list[str]:
    """The strategies of which the best is told under that name; none if it is one itself."""
    family, _, which = name.partition(":")
    if name == "best-single":
        return [f"single:{worker}" for worker in single_workers(ensemble)]
    if name == "untrained":
        return [f"untrained:{prompt}" for prompt in ensemble.untrained]
    if name == "moa":
        aggregators = (DRAWN, await best_alone())
        return [f"moa:{worker}/{form}" for worker in aggregators for form in FORMS]
    if name == "reflection" or (family == "reflection" and which in single_workers(ensemble)):
        worker = which or await best_alone()
        return [f"reflection:{worker}/{form}" for form in FORMS]
    return []


def strategy_named(name: str, ensemble: Ensemble) -> Strategy:
    """The strategy of that name, which was checked before and stands for no candidates."""
    family, _, which = name.partition(":")
    match family:
        case "conductor":
            return conducted(ensemble.conductor, rounds=1)
        case "recursion":
            return conducted(ensemble.conductor, rounds=2)
        case "untrained":
            return conducted(ensemble.untrained[which], rounds=1)
        case "single":
            return single(which)
        case "reflection":
            worker, form = _in_form(which)
            return reflection(worker, form)
        case "ideal":
            return ideal
        case "moa":
            aggregator, form = _in_form(which)
            return mixture_of_agents(aggregator, form)
        case "majority":
            return majority
        case _:
            assert family == "random", "every other name is checked or resolved before"
            return random_plans


def single_workers(ensemble: Ensemble) -> tuple[str, ...]:
    """The workers that can answer by themselves."""
    return tuple(w.name for w in ensemble.pool if w.provider != CONDUCTOR_PROVIDER)


def _in_form(which: str) -> tuple[str, Form]:
    """A worker and the form in which it is asked, as in `ann/system`."""
    worker, _, name = which.rpartition("/")
    (form,) = (form for form in FORMS if form == name)
    return worker, form
