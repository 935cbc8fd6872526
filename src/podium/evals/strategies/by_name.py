"""Strategies by name: which there are, what each needs, and what makes it.

How a strategy answers is in the modules beside this one (`baselines`, `conducting`, `learned`);
measuring strategies over cases is `podium.evals.evaluation`.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from podium._util.files import sha256_of
from podium.client.assembly import load_evolved_conductor
from podium.conductors import RulesConductor
from podium.conductors.evolved.description import FILE, PARAMETERS, read_description
from podium.config.problems import suggest
from podium.core.errors import UsageError
from podium.core.pool import CONDUCTOR_PROVIDER
from podium.evals.context import Strategy
from podium.evals.ensemble import Ensemble
from podium.evals.recorded import PROVIDER, WORDLESS
from podium.evals.sample import Case
from podium.evals.strategies.baselines import (
    DRAWN,
    FORMS,
    Form,
    best_of,
    consensus,
    majority,
    mixture_of_agents,
    reflection,
    single,
)
from podium.evals.strategies.conducting import conducted, ideal, random_plans
from podium.evals.strategies.learned import EVOLVED, LEARNED, named, read_learned
from podium.tasks.sources import optional


def is_function_name(name: str) -> bool:
    """Whether that can be the name of a function: a module or a file, a colon, an identifier."""
    module, colon, function = name.rpartition(":")
    dotted = all(part.isidentifier() for part in module.split("."))
    return bool(colon) and function.isidentifier() and (dotted or module.endswith(".py"))


def named_function(name: str) -> Callable[..., Any]:
    """The function of that name. Its module is imported, so it is run: name only what is yours."""
    if not is_function_name(name):
        raise UsageError(f"expected module:function or file.py:function, not {name!r}")
    place, _, attribute = name.rpartition(":")
    module = _from_file(Path(place)) if place.endswith(".py") else _imported(place)
    function = getattr(module, attribute, None)
    if function is None:
        public = [known for known in vars(module) if not known.startswith("_")]
        raise UsageError(f"{place} has no function {attribute!r}; {suggest(attribute, public)}")
    if not callable(function):
        raise UsageError(f"{name} is {type(function).__name__}, not a function")
    found: Callable[..., Any] = function
    return found


def file_of(name: str) -> Path | None:
    """The file that the function of that name stands in; None where its module has none."""
    place = name.rpartition(":")[0]
    if place.endswith(".py"):
        return Path(place)
    found: str | None = getattr(_imported(place), "__file__", None)
    return None if found is None else Path(found)


def _imported(module: str) -> ModuleType:
    """The module by its name; the directory that the command was started in is looked at too."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"cannot import {module!r}: {error}; name a module that is installed or stands in "
            f"this directory, or the path of a .py file"
        ) from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None, "a path that ends in .py always has one"
    assert specification.loader is not None, "and a loader"
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    except Exception as error:  # whatever a user's own file does when it is run
        raise UsageError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module


PLANNED: Final = ("conductor", "recursion", "untrained")
"""Strategies that need the conductor's model."""

PLANNING: Final = ("conductor", "untrained", "random", "rules")
"""Strategies that begin with a plan of their own, which can be graded as it is."""

USUAL_DRAWS: Final = 5
LAYERS: Final = 3
"""Of the Mixture-of-Agents that has several."""

STRATEGIES: Final = (
    "conductor",
    "recursion",
    "ideal",
    "best-single",
    "moa",
    f"moa-{LAYERS}",
    "reflection",
    "majority",
    f"majority-{USUAL_DRAWS}",
    f"best-of-{USUAL_DRAWS}",
    "rules",
    "random",
    "untrained",
)
"""The strategies by name. `single:W` and `reflection:W` are those of the worker W alone, as are
`best-of-N:W` and `majority-N:W`, with any number of draws; `untrained:P` asks with the prompt P.
What has to be fitted first (`LEARNED`) is named with its file, and `router` perhaps with a position
of its quality bias as well; a coordinator that was trained
(`EVOLVED`) with its directory, and somebody's own function as `module:function`."""

ASKING_MORE: Final = ("moa", f"moa-{LAYERS}", "reflection", "majority", "rules")
"""Strategies that ask more than the question, or compare words, which records cannot answer."""

_DRAWS: Final = re.compile(r"(best-of|majority)-([1-9]\d{0,2})")
_MIXTURES: Final = ("moa", f"moa-{LAYERS}")


def check_strategy(name: str, ensemble: Ensemble, cases: Sequence[Case]) -> None:
    """Refuse a strategy that there is not, before anything is asked."""
    family, colon, which = name.partition(":")
    if (family in ASKING_MORE or _DRAWS.fullmatch(family)) and _is_recorded(ensemble):
        raise UsageError(
            f"the strategy {name!r} asks workers more than the question or compares their words, "
            f"and those of this pool reply only what was recorded; use best-single, single:WORKER, "
            f"random, or one that is fitted"
        )
    if colon and (family in ("single", "reflection") or _DRAWS.fullmatch(family)):
        _check_worker(name, which, ensemble)
    elif family == "untrained":
        _check_prompt(name, which, ensemble)
    elif family in LEARNED:
        _check_learned(name, which, ensemble)
    elif family == EVOLVED:
        _check_evolved(which, ensemble)
    elif name == "ideal" and any(case.ideal is None for case in cases):
        raise UsageError("the strategy 'ideal' needs ideal plans, which only the études have")
    elif family not in STRATEGIES and is_function_name(name):
        named_function(name)
    elif name not in STRATEGIES and not _DRAWS.fullmatch(name):
        known = (*STRATEGIES, *LEARNED, EVOLVED, *(f"single:{w}" for w in single_workers(ensemble)))
        raise UsageError(f"there is no strategy {name!r}; {suggest(name, known)}")
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
    if name in _MIXTURES:
        aggregators = (DRAWN, await best_alone())
        return [f"{name}:{worker}/{form}" for worker in aggregators for form in FORMS]
    if name == "reflection" or (family == "reflection" and which in single_workers(ensemble)):
        worker = which or await best_alone()
        return [f"reflection:{worker}/{form}" for form in FORMS]
    if _DRAWS.fullmatch(name):
        return [f"{name}:{await best_alone()}"]
    return []


def strategy_named(name: str, ensemble: Ensemble) -> Strategy:
    """The strategy of that name, which was checked before and stands for no candidates."""
    family, _, which = name.partition(":")
    if family in LEARNED:
        path, quality_bias = named(name)
        learned = read_learned(path)
        return learned.strategy if quality_bias is None else learned.at(quality_bias)
    if drawn := _DRAWS.fullmatch(family):
        make = best_of if drawn[1] == "best-of" else consensus
        return make(which, int(drawn[2]))
    if family in _MIXTURES:
        aggregator, form = _in_form(which)
        return mixture_of_agents(aggregator, form, layers=1 if family == "moa" else LAYERS)
    match family:
        case "conductor":
            takes_turns = getattr(ensemble.conductor, "takes_turns", False)
            return conducted(
                ensemble.conductor, rounds=ensemble.options.rounds if takes_turns else 1
            )
        case "evolved":
            leading, _ = load_evolved_conductor(
                Path(which)
            )  # its model is unloaded with the process
            return conducted(leading, rounds=read_description(Path(which)).turns)
        case "recursion":
            return conducted(ensemble.conductor, rounds=2)
        case "untrained":
            return conducted(ensemble.untrained[which], rounds=1)
        case "rules":
            return conducted(RulesConductor(), rounds=1)
        case "single":
            return single(which)
        case "reflection":
            worker, form = _in_form(which)
            return reflection(worker, form)
        case "ideal":
            return ideal
        case "majority":
            return majority
        case "random":
            return random_plans
        case _:
            return named_function(name)


def note_on(name: str, cases: Sequence[Case]) -> str:
    """What a reader must know of that strategy on these cases; nothing, of most."""
    family = name.partition(":")[0]
    return read_learned(named(name).path).note(cases) if family in LEARNED else ""


def made_of(names: Iterable[str]) -> dict[str, str]:
    """The checksums of the files that strategies are made of: what was learned, and functions of
    one's own. With another file it is another strategy."""
    found = {}
    for name in names:
        family, _, which = name.partition(":")
        paths: tuple[Path | None, ...] = ()
        if family in LEARNED:
            paths = (named(name).path,)
        elif family == EVOLVED:
            paths = (Path(which) / FILE, Path(which) / PARAMETERS)
        elif family not in (*STRATEGIES, "single") and is_function_name(name):
            paths = (file_of(name),)
        if checksums := [sha256_of(path) for path in paths if path is not None]:
            found[name] = " ".join(checksums)
    return found


def single_workers(ensemble: Ensemble) -> tuple[str, ...]:
    """The workers that can answer by themselves."""
    return tuple(w.name for w in ensemble.pool if w.provider != CONDUCTOR_PROVIDER)


def _is_recorded(ensemble: Ensemble) -> bool:
    return any(worker.provider in (PROVIDER, WORDLESS) for worker in ensemble.pool)


def _check_worker(name: str, which: str, ensemble: Ensemble) -> None:
    singles = single_workers(ensemble)
    if which not in singles:
        raise UsageError(
            f"the strategy {name!r} names no worker of this pool; {suggest(which, singles)}"
        )


def _check_prompt(name: str, which: str, ensemble: Ensemble) -> None:
    if not ensemble.untrained:
        raise UsageError(
            "the strategy 'untrained' needs a conductor that is a model; set kind = \"model\""
        )
    if which and which not in ensemble.untrained:
        raise UsageError(
            f"the strategy {name!r} names no prompt; {suggest(which, ensemble.untrained)}"
        )


def _check_learned(name: str, which: str, ensemble: Ensemble) -> None:
    family = name.partition(":")[0]
    if not which:
        raise UsageError(
            f"the strategy {family!r} has to be fitted first: make its file by `podium eval fit`, "
            f"and name it as {family}:FILE"
        )
    path = named(name).path
    learned = read_learned(path)
    if learned.name != family:
        raise UsageError(f"{path} holds the strategy {learned.name!r}, not {family!r}")
    learned.check(single_workers(ensemble))


def _check_evolved(which: str, ensemble: Ensemble) -> None:
    if not which:
        raise UsageError(
            f"the strategy {EVOLVED!r} has to be trained first, by `podium train evolve`; name the "
            f"directory of the coordinator as {EVOLVED}:DIR"
        )
    described = read_description(Path(which))
    described.check(ensemble.pool)
    if described.turns > 1 and _is_recorded(ensemble):
        raise UsageError(
            f"the coordinator in {which} takes {described.turns} turns, and the workers of this "
            f"pool reply to the question alone, as was recorded; train one of a single turn"
        )
    optional("numpy", f"reading {which}", extra="train")
    from podium.conductors.evolved.coordinator import Coordinator

    Coordinator.load(Path(which))  # numbers that are damaged are told before anybody is asked


def _in_form(which: str) -> tuple[str, Form]:
    """A worker and the form in which it is asked, as in `ann/system`."""
    worker, _, name = which.rpartition("/")
    (form,) = (form for form in FORMS if form == name)
    return worker, form
