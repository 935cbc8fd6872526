"""Strategies by name: which exist, what each needs, and how it is made.

The file of a fitted strategy is versioned JSON: the strategy's name, the suite and workers that it
was fitted to, its parameters, and fingerprints of the questions that it learned from. Files of
`podium train router` are read too; they have no fingerprints. `router:FILE@0.5` sets the router's
quality bias.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import math
import re
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from podium._util.files import explain_write_errors, read_json, sha256_file, write_atomically
from podium.client.assembly import load_evolved_conductor
from podium.conductors import PlanningContext, RouterConductor, RulesConductor
from podium.conductors.evolved.turns import FILE, PARAMETERS, read_description
from podium.config.problems import suggest
from podium.core.errors import ConfigError, UsageError
from podium.core.run import Run
from podium.evals.sample import Case, EvalContext, Strategy
from podium.evals.setup import PROVIDER, WORDLESS, EvalSetup
from podium.evals.strategies.conducting import (
    DRAWN,
    FORMS,
    Form,
    best_of_n,
    conductor_strategy,
    execute_plan,
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
    from podium.evals.strategies.routers import Planner, RouterModel


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

PLANNING: Final = ("conductor", "baseline-conductor", "random", "rules")
"""Strategies whose plan can be graded."""

DEFAULT_DRAWS: Final = 5
LAYERS: Final = 3
"""Layers of the larger Mixture-of-Agents."""

STRATEGIES: Final = (
    "conductor",
    "recursion",
    "ideal",
    "best-single",
    "moa",
    f"moa-{LAYERS}",
    "reflection",
    "majority",
    f"majority-{DEFAULT_DRAWS}",
    f"best-of-{DEFAULT_DRAWS}",
    "rules",
    "random",
    "baseline-conductor",
)
"""Strategies by name. `single:W`, `reflection:W`, `best-of-N:W` and `majority-N:W` use the worker
W, `baseline-conductor:P` the prompt P. Those in `LEARNED` are named with their file, `EVOLVED`
with its directory, and a user's own as `module:function`."""

NEEDS_NEW_REPLIES: Final = ("moa", f"moa-{LAYERS}", "reflection", "majority", "rules")
"""Strategies that recorded workers cannot answer: they ask more, or compare texts."""

_DRAWS: Final = re.compile(r"(best-of|majority)-([1-9]\d{0,2})")
_MIXTURES: Final = ("moa", f"moa-{LAYERS}")


def check_strategy(name: str, setup: EvalSetup, cases: Sequence[Case]) -> None:
    """Reject an unknown or unsuitable strategy before any worker is called."""
    family, colon, which = name.partition(":")
    if (family in NEEDS_NEW_REPLIES or _DRAWS.fullmatch(family)) and _is_recorded(setup):
        raise UsageError(
            f"the strategy {name!r} asks workers more than the question or compares their replies, "
            f"and the workers of this pool only replay records; use best-single, single:WORKER, "
            f"random, or a fitted one"
        )
    if colon and (family in ("single", "reflection") or _DRAWS.fullmatch(family)):
        _check_worker(name, which, setup)
    elif family == "baseline-conductor":
        _check_prompt(name, which, setup)
    elif family in LEARNED:
        _check_learned(name, which, setup)
    elif family == EVOLVED:
        _check_evolved(which, setup)
    elif name == "ideal" and any(case.ideal is None for case in cases):
        raise UsageError("the strategy 'ideal' needs ideal plans, which only the études have")
    elif family not in STRATEGIES and is_function_name(name):
        load_function(name)
    elif name not in STRATEGIES and not _DRAWS.fullmatch(name):
        known = (*STRATEGIES, *LEARNED, EVOLVED, *(f"single:{w}" for w in single_workers(setup)))
        raise UsageError(f"unknown strategy {name!r}; {suggest(name, known)}")
    if family not in PLANNING and any(case.task.plan_grader for case in cases):
        raise UsageError(
            f"these tasks grade plans, and {name!r} writes none; "
            f"use {', '.join(PLANNING[:-1])} or {PLANNING[-1]}"
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
    if name in _MIXTURES:
        aggregators = (DRAWN, await best_worker())
        return [f"{name}:{worker}/{form}" for worker in aggregators for form in FORMS]
    if name == "reflection" or (family == "reflection" and which in single_workers(setup)):
        worker = which or await best_worker()
        return [f"reflection:{worker}/{form}" for form in FORMS]
    if _DRAWS.fullmatch(name):
        return [f"{name}:{await best_worker()}"]
    return []


def make_strategy(name: str, setup: EvalSetup) -> Strategy:
    """Make a strategy that was checked and has no candidates."""
    family, _, which = name.partition(":")
    if family in LEARNED:
        path, quality_bias = parse_learned_name(name)
        learned = read_learned(path)
        return learned.strategy if quality_bias is None else learned.with_quality_bias(quality_bias)
    if drawn := _DRAWS.fullmatch(family):
        make = best_of_n if drawn[1] == "best-of" else self_consistency
        return make(which, int(drawn[2]))
    if family in _MIXTURES:
        aggregator, form = _parse_form(which)
        return mixture_of_agents(aggregator, form, layers=1 if family == "moa" else LAYERS)
    match family:
        case "conductor":
            takes_turns = getattr(setup.conductor, "takes_turns", False)
            return conductor_strategy(
                setup.conductor, rounds=setup.options.rounds if takes_turns else 1
            )
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
            worker, form = _parse_form(which)
            return self_reflection(worker, form)
        case "ideal":
            return ideal_plan
        case "majority":
            return majority_vote
        case "random":
            return random_plan
        case _:
            return load_function(name)


def strategy_note(name: str, cases: Sequence[Case]) -> str:
    """Return a warning about that strategy on these cases, empty for most."""
    family = name.partition(":")[0]
    return read_learned(parse_learned_name(name).path).note(cases) if family in LEARNED else ""


def strategy_checksums(names: Iterable[str]) -> dict[str, str]:
    """Return checksums of the strategies' files: fitted models, coordinators, functions."""
    found = {}
    for name in names:
        family, _, which = name.partition(":")
        paths: tuple[Path | None, ...] = ()
        if family in LEARNED:
            paths = (parse_learned_name(name).path,)
        elif family == EVOLVED:
            paths = (Path(which) / FILE, Path(which) / PARAMETERS)
        elif family not in (*STRATEGIES, "single") and is_function_name(name):
            paths = (function_file(name),)
        if checksums := [sha256_file(path) for path in paths if path is not None]:
            found[name] = " ".join(checksums)
    return found


def single_workers(setup: EvalSetup) -> tuple[str, ...]:
    """Return the workers that are no conductors."""
    return tuple(w.name for w in setup.pool if w.is_model)


def _is_recorded(setup: EvalSetup) -> bool:
    return any(worker.provider in (PROVIDER, WORDLESS) for worker in setup.pool)


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


def _check_learned(name: str, which: str, setup: EvalSetup) -> None:
    family = name.partition(":")[0]
    if not which:
        raise UsageError(
            f"the strategy {family!r} has to be fitted first: podium eval fit writes its file; "
            f"name it as {family}:FILE"
        )
    path = parse_learned_name(name).path
    learned = read_learned(path)
    if learned.name != family:
        raise UsageError(f"{path} holds the strategy {learned.name!r}, not {family!r}")
    learned.check(single_workers(setup))


def _check_evolved(which: str, setup: EvalSetup) -> None:
    if not which:
        raise UsageError(
            f"the strategy {EVOLVED!r} has to be trained first: podium train evolve writes its "
            f"directory; name it as {EVOLVED}:DIR"
        )
    described = read_description(Path(which))
    described.check(setup.pool)
    if described.turns > 1 and _is_recorded(setup):
        raise UsageError(
            f"the coordinator in {which} takes {described.turns} turns, and the workers of this "
            f"pool only replay records; train one with a single turn"
        )
    import_optional("numpy", f"reading {which}", extra="train")
    from podium.conductors.evolved.coordinator import Coordinator

    Coordinator.load(Path(which))  # reject damaged parameters before any worker is called


def _parse_form(which: str) -> tuple[str, Form]:
    """Parse a worker and a form, as in `ann/system`."""
    worker, _, name = which.rpartition("/")
    (form,) = (form for form in FORMS if form == name)
    return worker, form


LEARNED: Final = (
    *("constant", "neighbours", "router"),
    *("routerdc", "smoothie", "smoothie-local", "masrouter"),
)
"""Strategies that must be fitted first, named with their file as in `routerdc:FILE`."""

EVOLVED: Final = "evolved"
"""A trained coordinator, named with its directory."""

MASROUTER: Final = "masrouter"
ROUTER: Final = "router"
FORMAT: Final = "podium-fitted"
VERSION: Final = 1
SEEN: Final = "it learned from {seen} of these {count} tasks: an optimistic figure"


@dataclass(frozen=True, slots=True, eq=False)
class LearnedStrategy:
    """A fitted strategy: its model, its training suite, and fingerprints of the questions."""

    name: str
    suite: str
    model: RouterModel | Planner
    questions: frozenset[str] = frozenset()

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers that it was fitted to."""
        return self.model.workers

    @property
    def strategy(self) -> Strategy:
        """Answer by the chosen worker, or by the model's plan."""
        from podium.evals.strategies.routers import Planner, choose_worker

        model = self.model
        if isinstance(model, Planner):
            planner = model

            async def answer(case: Case, context: EvalContext) -> Run:
                plan = planner.plan(case.task.question, case.pool)
                return await execute_plan(self.name, plan, case, context)

            return answer
        router = model

        def choose(context: PlanningContext) -> str:
            return choose_worker(router, context.question, context.pool.names)

        return conductor_strategy(RouterConductor(choose, name=self.name), rounds=1)

    def with_quality_bias(self, quality_bias: float) -> Strategy:
        """Answer with that quality bias; only Podium's own router has one."""
        from podium.evals.strategies.routers import HeadRouter

        router = self.model
        assert isinstance(router, HeadRouter), "no other name has a quality bias"

        def choose(context: PlanningContext) -> str:
            return router.choose_with_bias(quality_bias, context.question, context.pool.names)

        name = f"{self.name}@{quality_bias:g}"
        return conductor_strategy(RouterConductor(choose, name=name), rounds=1)

    def check(self, present: Collection[str]) -> None:
        """Reject a pool without any worker that it was fitted to."""
        if not set(present) & set(self.workers):
            raise UsageError(
                f"the strategy {self.name!r} was fitted to {', '.join(self.workers)}, and the "
                f"pool has {', '.join(present)}: none of them; fit it again on this pool"
            )

    def note(self, cases: Sequence[Case]) -> str:
        """Return a warning if it learned from some of these cases."""
        seen = len(self.questions & question_fingerprints(cases))
        return SEEN.format(seen=seen, count=len(cases)) if seen else ""

    def document(self) -> dict[str, Any]:
        """Return the strategy as JSON."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "strategy": self.name,
            "suite": self.suite,
            "workers": list(self.workers),
            "questions": sorted(self.questions),
            "learned": self.model.document(),
        }


class LearnedName(NamedTuple):
    """The parts of a fitted strategy's name: its file, and the quality bias if it has one."""

    path: Path
    quality_bias: float | None = None


def parse_learned_name(name: str) -> LearnedName:
    """Parse `routerdc:FILE` or `router:FILE@BIAS`; an existing file may have an @ in its name."""
    family, _, which = name.partition(":")
    file, at, bias = which.rpartition("@")
    if family != ROUTER or not at or _is_file(Path(which)):
        return LearnedName(Path(which))
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
    return LearnedName(Path(file), quality_bias)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # no file can have such a name
        return False


def write_learned(path: Path, learned: LearnedStrategy) -> None:
    """Write a fitted strategy atomically."""
    with explain_write_errors(path.parent, 0):
        write_atomically(path, json.dumps(learned.document()) + "\n")


def read_learned(path: Path) -> LearnedStrategy:
    """Read a fitted strategy."""
    require_numpy(f"reading {path.name}")
    from podium.conductors.routing.arrays import AGAIN
    from podium.conductors.routing.router import FORMAT as ROUTER_FORMAT
    from podium.evals.strategies.routers import read_model

    document = read_json(path, "make it by `podium eval fit`")
    if isinstance(document, dict) and document.get("format") == ROUTER_FORMAT:
        document = _from_trained_router(document)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ConfigError(
            f"{path}: expected a file written by `podium eval fit` or `podium train router`"
        )
    if document.get("version") != VERSION:
        raise ConfigError(
            f"{path}: version {document.get('version')!r} is not supported, only {VERSION}; fit "
            f"it again with this Podium"
        )
    name = str(document.get("strategy"))
    if name not in LEARNED:
        raise ConfigError(f"{path}: unknown strategy {name!r}; expected {', '.join(LEARNED)}")
    try:
        workers = _strings(document, "workers")
        if not workers or len(set(workers)) < len(workers):
            raise ConfigError(f"workers are missing or not distinct; {AGAIN}")
        learned = document.get("learned")
        model = read_model(name, workers, learned if isinstance(learned, Mapping) else {})
        seen = frozenset(_strings(document, "questions"))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return LearnedStrategy(name, str(document.get("suite", "")), model, seen)


def _strings(document: Mapping[str, Any], key: str) -> tuple[str, ...]:
    from podium.conductors.routing.arrays import AGAIN

    found = document.get(key, [])
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ConfigError(f"expected a list of strings in {key!r}; {AGAIN}")
    return tuple(found)


def _from_trained_router(router: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a file of `podium train router` to the form of `podium eval fit`."""
    rows = router.get("workers")
    known = rows if isinstance(rows, list) else []
    return {
        "format": FORMAT,
        "version": VERSION,
        "strategy": ROUTER,
        "suite": router.get("source", ""),
        "workers": [row["name"] for row in known if isinstance(row, Mapping) and "name" in row],
        "learned": router,
    }


def question_fingerprints(cases: Iterable[Case]) -> frozenset[str]:
    """Return a hash of each question."""
    return frozenset(
        hashlib.blake2b(case.task.question.encode("utf-8", "replace"), digest_size=8).hexdigest()
        for case in cases
    )


def require_numpy(purpose: str) -> None:
    """Raise a ConfigError that names the extra if numpy is missing."""
    import_optional("numpy", purpose)
