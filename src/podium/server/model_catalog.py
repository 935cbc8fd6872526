"""The names that clients may put in `model`, and what each stands for.

`podium-mini`, `podium` and `podium-ultra` are the tiers. A pinned alias, such as
`podium-ultra@3f9c2a71b0de`, is the same tier as long as nothing that shapes its answers has
changed; afterwards it is refused rather than answered differently. Every worker of the pool goes
by its own name, as through a plain gateway.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Final

from podium.conductors import Conductor, TierRouter, conductor_for_tier
from podium.config import Settings
from podium.config.problems import suggest
from podium.core.pool import CONDUCTOR_PROVIDER, Pool
from podium.core.run import Tier
from podium.core.worker import Worker
from podium.engine.requests import prompt_hash
from podium.engine.runner import Options
from podium.server.api_error import ApiError

TIERS: Final = MappingProxyType[str, Tier](
    {"podium-mini": "mini", "podium": "podium", "podium-ultra": "ultra"}
)
"""The tiers by the model names that clients ask for."""

MODEL_NAMES: Final = MappingProxyType[Tier, str]({tier: name for name, tier in TIERS.items()})

PIN: Final = "@"


def parse_tier(model: str) -> Tier | None:
    """The tier that a model name means, pinned (`podium-ultra@…`) or not; None for a worker's."""
    return TIERS.get(model.partition(PIN)[0])


@dataclass(frozen=True, slots=True)
class ModelTarget:
    """What serves a name: a tier, or one worker. `name` is without the pin."""

    name: str
    tier: Tier | None = None
    worker: Worker | None = None


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A name as a list of models shows it."""

    name: str
    owner: str
    description: str


class ModelCatalog:
    """The names of one server."""

    def __init__(
        self,
        workers: Sequence[Worker],
        pool: Pool,
        conductor: Conductor,
        options: Options,
        configured: Settings | None = None,
        mini: TierRouter | None = None,
    ) -> None:
        self._workers = {
            worker.profile.name: worker
            for worker in workers
            if worker.profile.provider != CONDUCTOR_PROVIDER
        }
        self._targets = {
            **{name: ModelTarget(name, worker=worker) for name, worker in self._workers.items()},
            **{name: ModelTarget(name, tier=tier) for name, tier in TIERS.items()},
        }
        self.pins = {
            name: f"{name}{PIN}{tier_fingerprint(tier, pool, conductor, options, configured, mini)}"
            for name, tier in TIERS.items()
        }
        for name, pinned in self.pins.items():
            self._targets[pinned] = self._targets[name]

    def find(self, name: str) -> ModelTarget:
        """What serves that name."""
        target = self._targets.get(name)
        if target is not None:
            return target
        tier, pin, _ = name.partition(PIN)
        if pin and tier in self.pins:
            raise ApiError(
                "not_found",
                f"{name!r} pins what this server no longer does; it is {self.pins[tier]!r} now",
                field="model",
            )
        known = (*TIERS, *self._workers)
        raise ApiError(
            "not_found", f"there is no model {name[:200]!r}; {suggest(name, known)}", field="model"
        )

    def __iter__(self) -> Iterator[ModelEntry]:
        for name in TIERS:
            yield ModelEntry(name, "podium", _TIER_LINES[TIERS[name]])
        for name, pinned in self.pins.items():
            yield ModelEntry(pinned, "podium", f"{name}, as it is now")
        for name, worker in self._workers.items():
            if name not in TIERS:
                profile = worker.profile
                yield ModelEntry(name, profile.provider or "podium", profile.description)


_TIER_LINES: Final = MappingProxyType[Tier, str](
    {
        "mini": "one worker, chosen without a plan",
        "podium": "as much conducting as the question seems to need",
        "ultra": "planned by the conductor, in several steps",
    }
)


def tier_fingerprint(
    tier: Tier,
    pool: Pool,
    conductor: Conductor,
    options: Options,
    configured: Settings | None = None,
    mini: TierRouter | None = None,
) -> str:
    """Changes whenever something does that shapes a tier's answers: the pool, who plans and with
    which prompts, which router chooses and how it is followed, what the workers are told, the
    options, and of the settings behind all that how the workers are called and which servers have
    tools for them."""
    leading = conductor_for_tier(tier, conductor, mini)
    planner = leading.worker
    plans = tier != "mini" or mini is not None
    written = getattr(conductor, "workflow", None) if plans else None
    shaping: list[Any] = [
        tier,
        asdict(pool),
        leading.name,
        leading.prompt_hash,
        asdict(planner.profile) if planner is not None else None,
        asdict(written) if written is not None else None,
        prompt_hash(),
        options.max_steps,
        options.rounds,
        asdict(options.budget),
        sorted(options.exclude),
        _shaping(configured, plans=plans) if configured is not None else None,
        mini.fingerprint if mini is not None and tier != "ultra" else None,
    ]
    text = json.dumps(shaping, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:12]


def _shaping(configured: Settings, *, plans: bool) -> dict[str, Any]:
    """What of the settings shapes the answers of a tier, and is in no profile. `plans` says that
    the conductor may be asked."""
    leading = configured.conductor
    planner = leading.worker if plans else None
    called = (*configured.workers, *((planner,) if planner is not None else ()))
    return {
        "workers": [[each.profile.name, each.base_url, each.options] for each in called],
        "planning": None
        if planner is None
        else [leading.temperature, leading.prompt, leading.few_shot, leading.fallback],
        "mcp": [asdict(server) for server in configured.mcp],
    }


def _plain(value: Any) -> Any:
    """What JSON has no form for, in one that is always the same."""
    if isinstance(value, Set):
        return sorted(value)
    return dict(value) if isinstance(value, Mapping) else str(value)
