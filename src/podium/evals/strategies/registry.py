"""Strategies by name: which exist, what each needs, and how it is made."""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from podium._util.files import sha256_file
from podium._util.lab import lab_extra
from podium.client.assembly import load_evolved_conductor
from podium.conductors import PlanningContext, RouterConductor, RulesConductor
from podium.conductors.evolved_turns import FILE, PARAMETERS, read_description
from podium.config.problems import suggest
from podium.core.errors import UsageError
from podium.evals.sample import Case, Strategy
from podium.evals.setup import EvalSetup
from podium.evals.strategies.conducting import (
    PLACEMENTS,
    RANDOM_WORKER,
    Placement,
    best_of_n,
    conductor_strategy,
    ideal_plan,
    majority_vote,
    mixture_of_agents,
    random_plan,
    self_consistency,
    self_reflection,
    single_worker,
)
from podium.tasks.readers import import_optional

if TYPE_CHECKING:
    from podium.conductors.routing import LearnedRouter


def is_function_name(name: str) -> bool:
    """True if the name has the form module:function or file.py:function."""
    module, colon, function = name.rpartition(":")
    dotted = all(part.isidentifier() for part in module.split("."))
    return bool(colon) and function.isidentifier() and (dotted or module.endswith(".py"))


def load_function(name: str) -> Callable[..., Any]:
    """Import a function by its name; that runs its module."""
    if not is_function_name(name):
        raise UsageError(f"expected module:function or file.py:function, not {name!r}")
    module_name, _, attribute = name.rpartition(":")
    module = (
        _import_file(Path(module_name))
        if module_name.endswith(".py")
        else _import_module(module_name)
    )
    function = getattr(module, attribute, None)
    if function is None:
        public = [known for known in vars(module) if not known.startswith("_")]
        raise UsageError(
            f"{module_name} has no function {attribute!r}; {suggest(attribute, public)}"
        )
    if not callable(function):
        raise UsageError(f"{name} is {type(function).__name__}, not a function")
    found: Callable[..., Any] = function
    return found


def function_file(name: str) -> Path | None:
    """Return the file of a function; None if its module has none."""
    module_name = name.rpartition(":")[0]
    if module_name.endswith(".py"):
        return Path(module_name)
    found: str | None = getattr(_import_module(module_name), "__file__", None)
    return None if found is None else Path(found)


def _import_module(module: str) -> ModuleType:
    """Import a module, also from the working directory."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"cannot import {module!r}: {error}; name a module that is installed or in this "
            f"directory, or the path of a .py file"
        ) from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None, "a path that ends in .py always has one"
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    except Exception as error:  # a user's file may raise anything
        raise UsageError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module


NEEDS_CONDUCTOR: Final = ("conductor", "recursion", "baseline-conductor")
"""Strategies that need the conductor's model."""

PLANNING_STRATEGIES: Final = ("conductor", "baseline-conductor", "random", "rules")
DEFAULT_SAMPLES: Final = 5
MOA_LAYERS: Final = 3
STRATEGIES: Final = (
    "conductor",
    "recursion",
    "ideal",
    "best-single",
    "moa",
    f"moa-{MOA_LAYERS}",
    "reflection",
    "majority",
    f"majority-{DEFAULT_SAMPLES}",
    f"best-of-{DEFAULT_SAMPLES}",
    "rules",
    "random",
    "baseline-conductor",
)
"""Strategies by name. `single:W`, `reflection:W`, `best-of-N:W` and `majority-N:W` use the worker
W, `baseline-conductor:P` the prompt P. `ROUTER` is named with its file, `EVOLVED` with its
directory, and a user's own as `module:function`."""

_SAMPLED: Final = re.compile(r"(best-of|majority)-([1-9]\d{0,2})")
_MOA_STRATEGIES: Final = ("moa", f"moa-{MOA_LAYERS}")


def check_strategy(name: str, setup: EvalSetup, cases: Sequence[Case]) -> None:
    """Reject an unknown or unsuitable strategy before any worker is called."""
    family, colon, which = name.partition(":")
    if colon and (family in ("single", "reflection") or _SAMPLED.fullmatch(family)):
        _check_worker(name, which, setup)
    elif family == "baseline-conductor":
        _check_prompt(name, which, setup)
    elif family == ROUTER:
        _check_router(name, which, setup)
    elif family == EVOLVED:
        _check_evolved(which, setup)
    elif name == "ideal" and any(case.ideal is None for case in cases):
        raise UsageError("the strategy 'ideal' needs ideal plans, which only the études have")
    elif family not in STRATEGIES and is_function_name(name):
        load_function(name)
    elif name not in STRATEGIES and not _SAMPLED.fullmatch(name):
        known = (*STRATEGIES, ROUTER, EVOLVED, *(f"single:{w}" for w in single_workers(setup)))
        raise UsageError(f"unknown strategy {name!r}; {suggest(name, known)}")
    if family not in PLANNING_STRATEGIES and any(case.task.plan_grader for case in cases):
        raise UsageError(
            f"these tasks grade plans, and {name!r} writes none; "
            f"use {', '.join(PLANNING_STRATEGIES[:-1])} or {PLANNING_STRATEGIES[-1]}"
        )


async def expand_candidates(
    name: str, setup: EvalSetup, best_worker: Callable[[], Awaitable[str]]
) -> list[str]:
    """Return the strategies of which the best is reported under that name; else none."""
    family, _, which = name.partition(":")
    if name == "best-single":
        return [f"single:{worker}" for worker in single_workers(setup)]
    if name == "baseline-conductor":
        return [f"baseline-conductor:{prompt}" for prompt in setup.baseline_conductors]
    if name in _MOA_STRATEGIES:
        aggregators = (RANDOM_WORKER, await best_worker())
        return [
            f"{name}:{worker}/{placement}" for worker in aggregators for placement in PLACEMENTS
        ]
    if name == "reflection" or (family == "reflection" and which in single_workers(setup)):
        worker = which or await best_worker()
        return [f"reflection:{worker}/{placement}" for placement in PLACEMENTS]
    if _SAMPLED.fullmatch(name):
        return [f"{name}:{await best_worker()}"]
    return []


def make_strategy(name: str, setup: EvalSetup) -> Strategy:
    family, _, which = name.partition(":")
    if family == ROUTER:
        path, quality_bias = parse_router_name(name)
        return router_strategy(read_router(path), quality_bias)
    if drawn := _SAMPLED.fullmatch(family):
        make = best_of_n if drawn[1] == "best-of" else self_consistency
        return make(which, int(drawn[2]))
    if family in _MOA_STRATEGIES:
        aggregator, placement = _parse_placement(which)
        return mixture_of_agents(aggregator, placement, layers=1 if family == "moa" else MOA_LAYERS)
    match family:
        case "conductor":
            rounds = setup.options.rounds if setup.conductor.takes_turns else 1
            return conductor_strategy(setup.conductor, rounds=rounds)
        case "evolved":
            # its model is unloaded with the process
            conductor, _ = load_evolved_conductor(Path(which))
            return conductor_strategy(conductor, rounds=read_description(Path(which)).turns)
        case "recursion":
            return conductor_strategy(setup.conductor, rounds=2)
        case "baseline-conductor":
            return conductor_strategy(setup.baseline_conductors[which], rounds=1)
        case "rules":
            return conductor_strategy(RulesConductor(), rounds=1)
        case "single":
            return single_worker(which)
        case "reflection":
            worker, placement = _parse_placement(which)
            return self_reflection(worker, placement)
        case "ideal":
            return ideal_plan
        case "majority":
            return majority_vote
        case "random":
            return random_plan
        case _:
            return load_function(name)


def strategy_checksums(names: Iterable[str]) -> dict[str, str]:
    """Return checksums of the strategies' files: fitted models, coordinators, functions."""
    found = {}
    for name in names:
        family, _, which = name.partition(":")
        paths: tuple[Path | None, ...] = ()
        if family == ROUTER:
            paths = (parse_router_name(name).path,)
        elif family == EVOLVED:
            paths = (Path(which) / FILE, Path(which) / PARAMETERS)
        elif family not in (*STRATEGIES, "single") and is_function_name(name):
            paths = (function_file(name),)
        if checksums := [sha256_file(path) for path in paths if path is not None]:
            found[name] = " ".join(checksums)
    return found


def single_workers(setup: EvalSetup) -> tuple[str, ...]:
    return tuple(w.name for w in setup.pool if w.is_model)


def _check_worker(name: str, which: str, setup: EvalSetup) -> None:
    singles = single_workers(setup)
    if which not in singles:
        raise UsageError(
            f"the strategy {name!r} names no worker of this pool; {suggest(which, singles)}"
        )


def _check_prompt(name: str, which: str, setup: EvalSetup) -> None:
    if not setup.baseline_conductors:
        raise UsageError(
            "the strategy 'baseline-conductor' needs a conductor that is a model; set "
            'kind = "model"'
        )
    if which and which not in setup.baseline_conductors:
        raise UsageError(
            f"the strategy {name!r} names no prompt; {suggest(which, setup.baseline_conductors)}"
        )


def _check_router(name: str, which: str, setup: EvalSetup) -> None:
    if not which:
        raise UsageError(
            f"the strategy {ROUTER!r} has to be trained first: podium train router writes its "
            f"file; name it as {ROUTER}:FILE"
        )
    workers = [worker.name for worker in read_router(parse_router_name(name).path).workers]
    present = single_workers(setup)
    if not set(present) & set(workers):
        raise UsageError(
            f"the router was trained for {', '.join(workers)}, and the pool has "
            f"{', '.join(present)}: none of them; train it again for this pool"
        )


def _check_evolved(which: str, setup: EvalSetup) -> None:
    if not which:
        raise UsageError(
            f"the strategy {EVOLVED!r} has to be trained first: podium lab evolve writes its "
            f"directory; name it as {EVOLVED}:DIR"
        )
    read_description(Path(which)).check(setup.pool)
    import_optional("numpy", f"reading {which}", extra="train")
    with lab_extra():
        from podium_lab.evolution.coordinator import Coordinator

    Coordinator.load(Path(which))  # reject damaged parameters before any worker is called


def _parse_placement(which: str) -> tuple[str, Placement]:
    """Parse a worker and a placement, as in `ann/system`."""
    worker, _, name = which.rpartition("/")
    (placement,) = (placement for placement in PLACEMENTS if placement == name)
    return worker, placement


ROUTER: Final = "router"
"""A trained router, named with its file, as in `router:FILE` or `router:FILE@BIAS`."""

EVOLVED: Final = "evolved"
"""A trained coordinator, named with its directory."""


class RouterName(NamedTuple):
    """The parts of a router strategy's name: its file, and the quality bias if it has one."""

    path: Path
    quality_bias: float | None = None


def parse_router_name(name: str) -> RouterName:
    """Parse `router:FILE` or `router:FILE@BIAS`; an existing file may have an @ in its name."""
    _, _, which = name.partition(":")
    file, at, bias = which.rpartition("@")
    if not at or _is_file(Path(which)):
        return RouterName(Path(which))
    if not file:
        raise UsageError(
            f"the strategy {name!r} has a quality bias and no file; expected {ROUTER}:FILE@0.5"
        )
    try:
        quality_bias = float(bias)
    except ValueError:
        quality_bias = math.nan
    if not 0 <= quality_bias <= 1:
        raise UsageError(
            f"the strategy {name!r} has the quality bias {bias!r}: expected a number from 0 "
            f"(cheapest worker) to 1 (best worker), as in {ROUTER}:FILE@0.5"
        )
    return RouterName(Path(file), quality_bias)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # no file can have such a name
        return False


def read_router(path: Path) -> LearnedRouter:
    import_optional("numpy", f"reading {path.name}")
    from podium.conductors.routing import LearnedRouter

    return LearnedRouter.load(path)


def router_strategy(router: LearnedRouter, quality_bias: float | None) -> Strategy:
    """Answer by the worker that the router chooses; by default the highest expected reward."""

    def choose(context: PlanningContext) -> str:
        (row,) = router.expected(router.encoder.encode([context.question]))
        names = [worker.name for worker in router.workers]
        known = [index for index, name in enumerate(names) if name in context.pool.names]
        if quality_bias is None:
            return names[max(known, key=lambda index: float(row[index]))]
        return names[router.quality_bias.choose(row, router.costs, quality_bias, known)]

    name = ROUTER if quality_bias is None else f"{ROUTER}@{quality_bias:g}"
    return conductor_strategy(RouterConductor(choose, name=name), rounds=1)
