"""From settings to a working Podium: workers connected, the conductor built.

Nothing is sent anywhere here; a worker that cannot be reached shows with its first call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from podium import conductor, plan
from podium.conductor import Conductor
from podium.config import Settings, WorkerSettings
from podium.errors import ConfigError
from podium.pool import CONDUCTOR_PROVIDER, Pool
from podium.providers import Http, connect
from podium.runner import ConductorWorker
from podium.worker import Worker
from podium.workflow import Workflow


@dataclass(frozen=True, slots=True)
class Assembly:
    """What settings amount to. `planner` is the worker that only plans, where there is one."""

    workers: tuple[Worker, ...]
    pool: Pool
    conductor: Conductor
    planner: Worker | None = None

    async def close(self) -> None:
        """Close the workers that hold something open, such as a loaded model."""
        for worker in (*self.workers, self.planner):
            close = getattr(worker, "close", None)
            if close is not None:
                await close()


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
    return Assembly(
        tuple(workers.values()), settings.pool, _conductor(settings, planner or named), planner
    )


def read_workflow_file(path: Path, pool: Pool) -> Workflow:
    """A workflow written by hand, in the JSON form that `podium plan --json` prints."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is not a JSON file: {error}") from error
    return plan.read_workflow(document, pool)


def _connect(worker: WorkerSettings, environment: Mapping[str, str], http: Http) -> Worker:
    profile = worker.profile
    if profile.provider == CONDUCTOR_PROVIDER:
        return ConductorWorker(profile)
    return connect(profile, worker.endpoint(environment), http)


def _conductor(settings: Settings, planner: Worker | None) -> Conductor:
    chosen = settings.conductor
    return conductor.build(
        chosen.kind,
        worker=planner,
        workflow=read_workflow_file(chosen.workflow, settings.pool) if chosen.workflow else None,
        prompt=chosen.prompt,
        few_shot=chosen.few_shot,
        temperature=chosen.temperature,
    )
