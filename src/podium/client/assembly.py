"""Build workers, conductor, guardrails and router from settings.

Nothing is sent here: a worker that cannot be reached fails with its first call.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from podium._util.lab import lab_extra
from podium.conductors import (
    KINDS,
    Conductor,
    FixedConductor,
    LoadRouter,
    ModelConductor,
    RouterConductor,
    RulesConductor,
    TierRouter,
    plan,
)
from podium.conductors.evolved_turns import read_description
from podium.config import GuardrailSettings, RouterSettings, Settings, WorkerSettings
from podium.config.problems import suggest
from podium.config.settings import EVOLVED_PREFIX
from podium.core.budget import Budget
from podium.core.errors import ConfigError, MalformedPlan, UsageError, needs_extra
from podium.core.pool import CONDUCTOR_PROVIDER, Pool
from podium.core.run import Tier
from podium.core.worker import Worker
from podium.core.workflow import Workflow
from podium.engine.guardrails import Grounding, Guardrail, Hook, Redaction, RedactionAction
from podium.engine.runner import ConductorWorker, Options
from podium.workers import Http, connect
from podium.workers.balanced import BalancedWorker, Deployment

if TYPE_CHECKING:  # needs numpy, of the extra `router`
    from podium.conductors.routing import LearnedRouter
    from podium_lab.evolution.hidden_states import HiddenStateReader


_NEEDED: Final = {"model": "worker", "fixed": "workflow", "evolved": "coordinator"}


@dataclass(frozen=True, slots=True)
class Assembly:
    """Workers and conductor, ready to use.

    Attributes:
        planner: The worker that plans but is not in the pool.
        hidden_state_reader: The model that reads transcripts for an evolved conductor.
        load_router: Loads the learned router of the mini tier on first use, as that takes a while.
        call_budget: The caps of a call to a worker by its name; None for those of a run.

    """

    workers: tuple[Worker, ...]
    pool: Pool
    conductor: Conductor
    planner: Worker | None = None
    guardrails: tuple[Guardrail, ...] = ()
    hidden_state_reader: HiddenStateReader | None = None
    load_router: LoadRouter = lambda: None
    call_budget: Budget | None = None

    async def close(self) -> None:
        """Close workers and models that hold resources."""
        await close_all((*self.workers, self.planner, self.hidden_state_reader))


def assemble(settings: Settings, environment: Mapping[str, str], http: Http) -> Assembly:
    """Connect the workers and build the conductor of the settings."""
    workers = {
        worker.profile.name: _connect(worker, environment, http) for worker in settings.workers
    }
    chosen, reader, planner = settings.conductor, None, None
    conductor: Conductor
    if chosen.worker is not None and chosen.worker not in settings.workers:
        planner = _connect(chosen.worker, environment, http)
    if chosen.kind == "evolved" and chosen.coordinator is not None:
        conductor, reader = load_evolved_conductor(chosen.coordinator)
    elif chosen.kind == "fixed" and chosen.workflow is not None:
        conductor = FixedConductor(read_workflow_file(chosen.workflow).workflow(settings.pool))
    elif chosen.kind == "model" and chosen.worker is not None:
        conductor = ModelConductor(
            planner or workers[chosen.worker.profile.name],
            prompt=chosen.prompt,
            few_shot=chosen.few_shot,
            temperature=chosen.temperature,
            fallback=chosen.fallback,
            overlap=chosen.overlap,
            speculate=chosen.speculate,
        )
    elif chosen.kind in ("rules", "router"):
        conductor = RulesConductor() if chosen.kind == "rules" else RouterConductor()
    else:
        raise ConfigError(f"the conductor of kind {chosen.kind!r} lacks its {_NEEDED[chosen.kind]}")
    return Assembly(
        tuple(workers.values()),
        settings.pool,
        conductor,
        planner,
        tuple(map(build_guardrail, settings.guardrails)),
        reader,
        cache(partial(load_router, settings)),
        settings.budget,
    )


def assemble_workers(
    workers: Sequence[Worker], conductor: Conductor | str | None, pool: Pool | None
) -> Assembly:
    """Build an assembly from workers of the caller's own; the best one plans by default."""
    pool = pool or Pool(tuple(worker.profile for worker in workers))
    if conductor is not None and not isinstance(conductor, str):
        return Assembly(tuple(workers), pool, conductor)
    by_name = {worker.profile.name: worker for worker in workers}
    if conductor in by_name:
        return Assembly(tuple(workers), pool, ModelConductor(by_name[conductor]))
    match conductor:
        case None | "model":
            return Assembly(tuple(workers), pool, ModelConductor(by_name[pool.most_expensive.name]))
        case "rules":
            return Assembly(tuple(workers), pool, RulesConductor())
        case "router":
            return Assembly(tuple(workers), pool, RouterConductor())
        case "fixed":
            raise UsageError("conductor 'fixed' needs a workflow; use FixedConductor(workflow)")
        case str() if conductor.startswith(EVOLVED_PREFIX):
            directory = Path(conductor.removeprefix(EVOLVED_PREFIX)).expanduser()
            read_description(directory).check(pool)
            evolved, reader = load_evolved_conductor(directory)
            return Assembly(tuple(workers), pool, evolved, hidden_state_reader=reader)
        case "evolved":
            raise UsageError("conductor 'evolved' needs a directory; use 'evolved:DIRECTORY'")
        case _:
            raise UsageError(
                f"unknown conductor {conductor!r}; {suggest(conductor, (*KINDS, *by_name))}"
            )


def load_router(settings: Settings) -> TierRouter | None:
    """Load the learned router of the mini tier and check it against the pool."""
    wanted = settings.mini
    if wanted is None:
        return None
    tier_router = TierRouter(
        _read_router(wanted),
        confidence=wanted.confidence,
        quality_bias=wanted.quality_bias,
        narrow=wanted.on_pool_change == "narrow",
    )
    return tier_router.fit_to(
        settings.pool,
        trained_for=wanted.trained_for,
        label=f"mini.router: {wanted.router}",
        narrow_hint='on_pool_change = "narrow" in [mini]',
    )


def check_quality_bias(tier: Tier, router: LoadRouter) -> None:
    """Refuse a quality bias that has no effect in the tier. Needs no worker and no weights."""
    if tier == "ultra":
        raise UsageError("a quality bias is for the tiers that route, mini and podium; drop it")
    if router() is None:
        raise UsageError(
            "a quality bias needs a learned router, and this pool has none; drop it, or name a "
            "router with router in the configuration's [mini]"
        )


def load_evolved_conductor(
    directory: Path,
) -> tuple[Conductor, HiddenStateReader]:
    """Load a trained coordinator as a conductor, with the reader to close afterwards.

    The model that reads is loaded with the first question.
    """
    with lab_extra():
        from podium_lab.evolution.coordinator import Coordinator, EvolvedConductor
        from podium_lab.evolution.hidden_states import HiddenStateReader

    description = read_description(directory)
    reader = HiddenStateReader(description.base, token=description.hidden_state_token)
    return EvolvedConductor(Coordinator.load(directory), reader), reader


async def close_all(items: Iterable[object]) -> None:
    """Close every item that has a `close`; one failure does not keep the others open."""
    async with AsyncExitStack() as stack:
        for item in items:
            close = getattr(item, "close", None)
            if close is not None:
                stack.push_async_callback(close)


def default_options(settings: Settings, exclude: frozenset[str] = frozenset()) -> Options:
    """Return the options that the settings give every run, with what it excludes."""
    return Options(
        exclude=exclude,
        tier="podium",
        max_steps=settings.conductor.max_steps,
        rounds=settings.conductor.rounds,
        budget=settings.run_budget,
    )


def build_guardrail(settings: GuardrailSettings) -> Guardrail:
    """Build the guardrail that the settings describe."""
    hook: Hook | Redaction
    match settings.kind:
        case "redact":
            action: RedactionAction = "block" if settings.action == "block" else "redact"
            hook = Redaction(settings.kinds, action=action, restore=settings.restore)
        case "grounding":
            assert settings.action != "redact", "the settings were checked"
            hook = Grounding(settings.verifier, action=settings.action or "block")
        case "python":
            hook = _import_hook(settings)
    return Guardrail(
        settings.name, hook, settings.stages, settings.on_error, settings.timeout_seconds
    )


@dataclass(frozen=True, slots=True)
class WorkflowFile:
    """A workflow in the JSON form that `podium plan --json` prints."""

    name: str
    document: Mapping[str, Any]

    @property
    def question(self) -> str | None:
        """The question that the file holds, if any."""
        question = self.document.get("question")
        return question if isinstance(question, str) else None

    def workflow(self, pool: Pool) -> Workflow:
        """Read the workflow for the workers of the pool."""
        try:
            return plan.read_workflow(self.document, pool)
        except MalformedPlan as error:
            raise MalformedPlan(f"{self.name}: {error.where}", error.reason) from error


def read_workflow_file(source: Path | TextIO) -> WorkflowFile:
    """Read a workflow from a path, or from an open file such as standard input."""
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


def connect_endpoints(worker: WorkerSettings, environment: Mapping[str, str], http: Http) -> Worker:
    """Connect a worker, or all of its deployments."""
    if not worker.deployments:
        return connect(worker.profile, worker.endpoint(environment), http)
    deployments = [
        Deployment(one.name, connect_endpoints(one.worker, environment, http), one.weight)
        for one in worker.deployments
    ]
    return BalancedWorker(worker.profile, deployments, worker.balance)


def _connect(worker: WorkerSettings, environment: Mapping[str, str], http: Http) -> Worker:
    if worker.profile.provider == CONDUCTOR_PROVIDER:
        return ConductorWorker(worker.profile)
    return connect_endpoints(worker, environment, http)


def _read_router(wanted: RouterSettings) -> LearnedRouter:
    with needs_extra("router", f"mini.router: {wanted.router}"):
        from podium.conductors.routing import LearnedRouter
    return LearnedRouter.load(Path(wanted.router))


def _import_hook(settings: GuardrailSettings) -> Hook:
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
        raise ConfigError(f"{where} is not a function; define {function} in {module}")
    hook: Hook = found
    return hook
