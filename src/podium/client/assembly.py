"""From settings to a working Podium: workers connected, the conductor built.

Nothing is sent anywhere here; a worker that cannot be reached shows with its first call.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from podium import conductors as conductor
from podium.conductors import Conductor, TierRouter, conductor_for_tier, plan
from podium.conductors.evolved.description import read_description
from podium.config import GuardrailSettings, RouterSettings, Settings, WorkerSettings
from podium.core.errors import ConfigError, MalformedPlan, UsageError, installing
from podium.core.pool import CONDUCTOR_PROVIDER, Pool
from podium.core.run import Tier
from podium.core.worker import Worker
from podium.core.workflow import Workflow
from podium.engine.guardrails import Found, Grounding, Guardrail, Hook, Redaction
from podium.engine.runner import ConductorWorker, Options
from podium.workers import FaultyWorker, Http, connect
from podium.workers.local.hidden_states import HiddenReader

if TYPE_CHECKING:  # it loads numpy, which is of the extra `router`
    from podium.conductors.routing import LearnedRouter


@dataclass(frozen=True, slots=True)
class Assembly:
    """What settings amount to. `planner` is the worker that only plans, and `reader` who reads
    transcripts for the conductor, where there is one. `guardrails` look at every run. `mini` makes
    the learned router that serves the mini tier, where there is one: when it is first needed, for
    it takes a while to load. Where it was left out, `lacking` says what it needs."""

    workers: tuple[Worker, ...]
    pool: Pool
    conductor: Conductor
    planner: Worker | None = None
    guardrails: tuple[Guardrail, ...] = ()
    reader: HiddenReader | None = None
    mini: Callable[[], TierRouter | None] = lambda: None
    lacking: Callable[[], str] = lambda: ""

    def conductor_for(self, tier: Tier) -> Conductor:
        """Who leads the runs of that tier."""
        return conductor_for_tier(tier, self.conductor, self.mini() if tier != "ultra" else None)

    async def close(self) -> None:
        """Close what holds something open, such as a loaded model."""
        await close_all((*self.workers, self.planner, self.reader))


@dataclass(frozen=True, slots=True)
class WorkflowFile:
    """A workflow written by hand, in the JSON form that `podium plan --json` prints."""

    name: str
    document: Mapping[str, Any]

    @property
    def question(self) -> str | None:
        """What the file says is to be answered, if it says so."""
        question = self.document.get("question")
        return question if isinstance(question, str) else None

    def workflow(self, pool: Pool) -> Workflow:
        """The workflow, for the workers of that pool."""
        try:
            return plan.read_workflow(self.document, pool)
        except MalformedPlan as error:
            raise MalformedPlan(f"{self.name}: {error.where}", error.reason) from error


def assemble(settings: Settings, environment: Mapping[str, str], http: Http) -> Assembly:
    """Connect the workers and build the conductor that the settings name."""
    settings.check()
    workers = {
        worker.profile.name: _connect(worker, environment, http) for worker in settings.workers
    }
    planning = settings.conductor.worker
    planner = None
    if planning is not None and planning not in settings.workers:
        planner = _connect(planning, environment, http)
    named = workers.get(planning.profile.name) if planning is not None else None
    chosen, reader = settings.conductor, None
    if chosen.kind == "evolved" and chosen.coordinator is not None:
        leading, reader = load_evolved_conductor(chosen.coordinator, notice=chosen.notice)
    else:
        leading = _conductor(settings, planner or named)
    return Assembly(
        tuple(workers.values()),
        settings.pool,
        leading,
        planner,
        tuple(map(build_guardrail, settings.guardrails)),
        reader,
        cache(partial(load_router, settings)),
        partial(router_problem, settings.mini),
    )


def load_router(settings: Settings) -> TierRouter | None:
    """The learned router that the settings name, held against the pool that it is to choose from:
    one that was trained with others is refused, or kept to those that both have. One that nobody
    named is left out on a machine that lacks what it needs; `router_problem` says what that is."""
    wanted = settings.mini
    if wanted is None:
        return None
    try:
        router = _router(wanted)
    except ConfigError:
        if wanted.optional:
            return None
        raise
    narrow = wanted.pool_changed == "narrow"
    mini = TierRouter(
        router, confidence=wanted.confidence, quality_bias=wanted.quality_bias, narrow=narrow
    )
    return mini.fitted_to(
        settings.pool,
        trained_for=wanted.trained_for,
        called=f"mini.router: {wanted.router}",
        narrowing='pool_changed = "narrow" in [mini]',
    )


def check_quality_bias(
    tier: Tier, mini: Callable[[], TierRouter | None], lacking: Callable[[], str]
) -> None:
    """Refuse a quality bias that nobody would heed in that tier, where this is the router, and
    what it lacks. Needs no worker, and no weights."""
    if tier == "ultra":
        raise UsageError("a quality bias is for the tiers that route, mini and podium; drop it")
    if mini() is None:
        missing = lacking()
        raise UsageError(
            f"a quality bias needs a learned router, and this pool's cannot be used here: {missing}"
            if missing
            else "a quality bias needs a learned router, and this pool has none; drop it, or name "
            "a router "
            "with router in the configuration's [mini]"
        )


def router_problem(wanted: RouterSettings | None) -> str:
    """Why the router cannot be loaded; empty where it can, or where none is wanted."""
    if wanted is None:
        return ""
    try:
        _router(wanted)
    except ConfigError as error:
        return str(error)
    return ""


def _router(wanted: RouterSettings) -> LearnedRouter:
    """The router from its file."""
    try:
        from podium.conductors.routing import LearnedRouter, shipped_router
    except ImportError as error:
        raise ConfigError(
            f"mini.router: {wanted.router} needs {error.name}, which is not here; install it by: "
            f"{installing('router')}"
        ) from error
    name = wanted.shipped
    return LearnedRouter.load(shipped_router(name) if name else Path(wanted.router))


def load_evolved_conductor(directory: Path, *, notice: str = "") -> tuple[Conductor, HiddenReader]:
    """The coordinator in that directory as a conductor, and who reads for it, to be closed in the
    end. The model that reads is loaded with the first question."""
    described = read_description(directory)
    reader = HiddenReader(described.base, token=described.token)
    from podium.conductors.evolved.coordinator import Coordinator

    coordinator = Coordinator.load(directory)
    scaled = reader.with_scales(described.matrices, coordinator.scales)
    leading = conductor.build("evolved", coordinator=coordinator, reader=scaled, notice=notice)
    return leading, reader


async def close_all(those: Iterable[object]) -> None:
    """Close those that hold something open; where one cannot be closed, the others still are."""
    async with AsyncExitStack() as stack:
        for one in those:
            close = getattr(one, "close", None)
            if close is not None:
                stack.push_async_callback(close)


def default_options(settings: Settings) -> Options:
    """What the settings say of every run."""
    return Options(
        max_steps=settings.conductor.max_steps,
        rounds=settings.conductor.rounds,
        budget=settings.budget,
    )


def build_guardrail(settings: GuardrailSettings) -> Guardrail:
    """The guardrail that the settings describe."""
    hook: Hook | Redaction
    match settings.kind:
        case "redact":
            found: Found = "block" if settings.action == "block" else "redact"
            hook = Redaction(settings.finds, found=found, restore=settings.restore)
        case "grounding":
            assert settings.action != "redact", "the settings were checked"
            hook = Grounding(settings.verifier, ungrounded=settings.action or "block")
        case "python":
            hook = _imported(settings)
    return Guardrail(settings.name, hook, settings.places, settings.on_error, settings.seconds)


def _imported(settings: GuardrailSettings) -> Hook:
    """The function that a guardrail of the user's own is."""
    module, _, function = settings.hook.partition(":")
    where = f"the guardrail {settings.name!r}: {settings.hook}"
    try:
        found = getattr(importlib.import_module(module), function, None)
    except Exception as error:
        raise ConfigError(
            f"{where} cannot be imported ({type(error).__name__}: {error}); put the directory of "
            f"{module} on PYTHONPATH"
        ) from error
    if not callable(found):
        raise ConfigError(f"{where} is no function; define {function} in {module}")
    hook: Hook = found
    return hook


def read_workflow_file(source: Path | TextIO) -> WorkflowFile:
    """Read a workflow from a file, or from one that is open, such as standard input."""
    name = str(source) if isinstance(source, Path) else "standard input"
    try:
        text = source.read_text("utf-8") if isinstance(source, Path) else source.read()
        document = json.loads(text)
    except FileNotFoundError:
        raise ConfigError(f"{name}: there is no such file") from None
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: is not JSON: {error}; podium plan --json writes one") from error
    if not isinstance(document, dict):
        raise ConfigError(f'{name}: a workflow is an object {{"steps": [...]}}; write one')
    return WorkflowFile(name, document)


def _connect(worker: WorkerSettings, environment: Mapping[str, str], http: Http) -> Worker:
    profile = worker.profile
    if profile.provider == CONDUCTOR_PROVIDER:
        return ConductorWorker(profile)
    connected = connect(profile, worker.endpoint(environment), http)
    if worker.faults is None:
        return connected
    return FaultyWorker(connected, worker.faults, worker.faults_seed)


def _conductor(settings: Settings, planner: Worker | None) -> Conductor:
    chosen = settings.conductor
    file = read_workflow_file(chosen.workflow) if chosen.workflow else None
    return conductor.build(
        chosen.kind,
        worker=planner,
        workflow=file.workflow(settings.pool) if file else None,
        prompt=chosen.prompt,
        few_shot=chosen.few_shot,
        temperature=chosen.temperature,
        fallback=chosen.fallback,
    )
