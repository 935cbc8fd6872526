"""The models that clients can request.

`podium-mini`, `podium` and `podium-ultra` are the tiers. A pinned alias such as
`podium-ultra@3f9c2a71b0de` is refused once anything that shapes the tier's answers has changed.
Each worker of the pool is a model by its own name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Final

from podium.client.assembly import Assembly
from podium.conductors import conductor_for_tier
from podium.config import Settings
from podium.config.problems import suggest
from podium.core.run import Tier
from podium.core.worker import Worker
from podium.engine.requests import prompt_hash
from podium.engine.runner import Options
from podium.server.api_error import ApiError

TIERS: Final = MappingProxyType[str, Tier](
    {"podium-mini": "mini", "podium": "podium", "podium-ultra": "ultra"}
)

MODEL_NAMES: Final = MappingProxyType[Tier, str]({tier: name for name, tier in TIERS.items()})

_DESCRIPTIONS: Final = MappingProxyType[Tier, str](
    {
        "mini": "one worker, chosen without a plan",
        "podium": "as much conducting as the question seems to need",
        "ultra": "planned by the conductor, in several steps",
    }
)

PIN: Final = "@"


def parse_tier(model: str) -> Tier | None:
    """Return the tier of a model name, pinned or not; None for a worker's."""
    return TIERS.get(model.partition(PIN)[0])


@dataclass(frozen=True, slots=True)
class ModelTarget:
    """A tier or a worker that serves a model; `name` is without the pin."""

    name: str
    tier: Tier | None = None
    worker: Worker | None = None


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model in the list of models."""

    name: str
    owner: str
    description: str


class ModelCatalog:
    """The models of one server."""

    def __init__(
        self, assembly: Assembly, options: Options, configured: Settings | None = None
    ) -> None:
        self._workers = {
            worker.profile.name: worker for worker in assembly.workers if worker.profile.is_model
        }
        self.can_sample = any(
            "sampling" in worker.profile.capabilities for worker in self._workers.values()
        )
        """True if a worker accepts temperature, top_p or seed; reasoning models do not."""
        self.pins = {
            name: f"{name}{PIN}{tier_fingerprint(tier, assembly, options, configured)}"
            for name, tier in TIERS.items()
        }
        self._targets = {
            **{name: ModelTarget(name, worker=worker) for name, worker in self._workers.items()},
            **{name: ModelTarget(name, tier=tier) for name, tier in TIERS.items()},
            **{self.pins[name]: ModelTarget(name, tier=tier) for name, tier in TIERS.items()},
        }

    def find(self, name: str) -> ModelTarget:
        target = self._targets.get(name)
        if target is not None:
            return target
        tier, pin, _ = name.partition(PIN)
        if pin and tier in self.pins:
            raise ApiError(
                "not_found",
                f"pinned model not found: {name!r} has changed; it is now {self.pins[tier]!r}",
                field="model",
            )
        known = (*TIERS, *self._workers)
        raise ApiError(
            "not_found", f"model not found: {name[:200]!r}; {suggest(name, known)}", field="model"
        )

    def __iter__(self) -> Iterator[ModelEntry]:
        """Yield the listed models; pinned aliases answer without being listed."""
        for name, tier in TIERS.items():
            yield ModelEntry(name, "podium", _DESCRIPTIONS[tier])
        for name, worker in self._workers.items():
            if name not in TIERS:
                profile = worker.profile
                yield ModelEntry(name, profile.provider or "podium", profile.description)


def tier_fingerprint(
    tier: Tier, assembly: Assembly, options: Options, configured: Settings | None = None
) -> str:
    """Hash everything that shapes a tier's answers: pool, conductor, router, prompts, options, how
    workers are called and which MCP servers they have."""
    router = assembly.load_router()
    conductor = conductor_for_tier(tier, assembly.conductor, assembly.load_router)
    planner = conductor.worker
    plans = tier != "mini" or router is not None
    workflow = getattr(assembly.conductor, "workflow", None) if plans else None
    parts: list[Any] = [
        tier,
        asdict(assembly.pool),
        conductor.name,
        conductor.prompt_hash,
        asdict(planner.profile) if planner is not None else None,
        asdict(workflow) if workflow is not None else None,
        prompt_hash(),
        options.max_steps,
        options.rounds,
        asdict(options.budget),
        sorted(options.exclude),
        _settings_parts(configured, plans=plans) if configured is not None else None,
        router.fingerprint if router is not None and tier != "ultra" else None,
    ]
    text = json.dumps(parts, sort_keys=True, default=_to_json)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:12]


def _settings_parts(configured: Settings, *, plans: bool) -> dict[str, Any]:
    """Return the settings that shape answers and are in no profile."""
    conductor = configured.conductor
    planner = conductor.worker if plans else None
    called = (*configured.workers, *((planner,) if planner is not None else ()))
    return {
        "workers": [[item.profile.name, item.base_url, item.options] for item in called],
        "planning": None
        if planner is None
        else [conductor.temperature, conductor.prompt, conductor.few_shot, conductor.fallback],
        "mcp": [asdict(server) for server in configured.mcp],
    }


def _to_json(value: Any) -> Any:
    """Encode deterministically what JSON cannot hold."""
    if isinstance(value, Set):
        return sorted(value)
    return dict(value) if isinstance(value, Mapping) else str(value)
