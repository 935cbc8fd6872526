"""The form of `podium.toml` and of pool files: a whole file, and the tables of who plans, who works
and within what bounds.

The tables of the store and of the server are `serving`; those that belong to a subject of their own
lie with it (`mcp`, `mini`, `guardrails`, `hedging`, `faults`). What a single key may hold is
`values`, and how paths come to be counted from the file that they stand in is `anchoring`.

Only what can be said of one key by itself is checked here. What keys mean together (a fallback
that is in the pool, a provider's address) is settled in `resolve`; how a mistake is put into
words is `problems`. The descriptions are the documentation: `reference` prints them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, Field

from podium.config.guardrails import GuardrailTable
from podium.config.sections import FaultsTable, HedgeTable, McpTable, RouterTable
from podium.config.serving import ServerTable, StoreTable
from podium.config.values import (
    BATCHING_PROVIDER,
    WEIGHTS_PROVIDER,
    Count,
    Name,
    PoolChanged,
    Seconds,
    VariableName,
    anchored,
    anchored_options,
    anchored_weights,
)
from podium.core.workflow import DEFAULT_MAX_STEPS
from podium.workers.catalogue import Capabilities, Dollars, PriceTable, Table, Tokens

ConductorKind = Literal["model", "rules", "router", "fixed", "evolved"]
PromptLength = Literal["full", "compact", "trained"]


class ConductorTable(Table):
    """Who plans, and how much."""

    kind: ConductorKind = Field(
        default="model",
        description="`model`: a model is asked to plan; `rules`: three workflows chosen by words "
        "in the question; `router`: one worker, no plan; `fixed`: always the same workflow; "
        "`evolved`: a trained coordinator picks a worker and a role, turn by turn",
    )
    model: Name | None = Field(
        default=None,
        description="with `model`: who plans, a worker's name, `provider/model`, or "
        "`embedded/…`, one that Podium ships; when left out, the worker that the catalogue ranks "
        "first, else the pool's best",
    )
    workflow: Name | None = Field(
        default=None, description="with `fixed`: the workflow's JSON file, relative to this one"
    )
    coordinator: Name | None = Field(
        default=None,
        description="with `evolved`: the directory that `podium train evolve` wrote, relative to "
        "this file",
    )
    pool_changed: PoolChanged = Field(
        default="refuse",
        description="with `evolved`, where workers were added, removed or replaced since "
        "training: `refuse` to begin, or `narrow` the choice to the workers that both have, "
        "with a warning on every run",
    )
    options: dict[str, Any] = Field(
        default={},
        description="with a `model` that is `provider/model`: what a worker's `options` would be",
    )
    max_steps: Count = Field(
        default=DEFAULT_MAX_STEPS, description="the most steps that a plan may have"
    )
    rounds: Count = Field(
        default=1,
        description="the most rounds: after each, the conductor accepts the answer or replans; "
        "with `evolved` the most turns, when left out as many as in training",
    )
    temperature: Annotated[float, Field(ge=0, le=2)] = Field(
        default=0.2, description="with `model`: sent where the model accepts it"
    )
    prompt: PromptLength = Field(
        default="full",
        description="with `model`: `compact` is a short prompt for very small models, `trained` "
        "an even shorter one for models that were trained to plan with it",
    )
    few_shot: bool = Field(
        default=True, description="with `model`: show worked examples; `trained` has none"
    )
    fallback: Name | None = Field(
        default=None,
        description="with `model`: the worker that answers alone where there is no plan; when "
        "left out, the pool's best",
    )

    def anchored(self, directory: Path) -> ConductorTable:
        """This table with its files counted from that directory."""
        changes: dict[str, Any] = {}
        if self.workflow is not None:
            changes["workflow"] = anchored(self.workflow, directory)
        if self.coordinator is not None:
            changes["coordinator"] = anchored(self.coordinator, directory)
        provider, slash, weights = (self.model or "").partition("/")
        if slash and provider in (WEIGHTS_PROVIDER, BATCHING_PROVIDER):
            changes["model"] = f"{provider}/{anchored_weights(weights, directory)}"
            if "options" in self.model_fields_set:
                changes["options"] = anchored_options(self.options, provider, directory)
        return self.model_copy(update=changes)


class BudgetTable(Table):
    """The caps of each run, nested runs included. A cap that is left out does not exist."""

    usd: Dollars | None = Field(default=None, description="US dollars")
    seconds: Seconds | None = Field(default=None, description="wall time")
    calls: Count | None = Field(
        default=None, description="calls to models, planning and retries included"
    )
    tokens: Tokens | None = Field(default=None, description="input and output tokens together")
    depth: Annotated[int, Field(ge=0)] = Field(
        default=2, description="how deep runs may nest; 0: not at all"
    )
    allow_unpriced: bool = Field(
        default=False, description="allow `usd` although some worker's price is unknown"
    )


class PoolTable(Table):
    """What workers and the conductor may see."""

    share_question: bool = Field(
        default=True, description="workers see the question itself; `false`: only their subtask"
    )
    mask_names: bool = Field(
        default=False, description="hide the workers' names from the conductor, as in the paper"
    )


class RetryTable(Table):
    """When a failed call is made again."""

    attempts: Count = Field(default=4, description="the most calls to one worker for one step")
    first_wait: Seconds = Field(
        default=0.5, description="seconds before the second; each wait doubles"
    )
    longest_wait: Seconds = Field(
        default=30.0, description="the longest of these waits, in seconds"
    )
    longest_requested_wait: Seconds = Field(
        default=60.0,
        description="a provider that asks for a longer wait than this counts as failed",
    )


class BreakerTable(Table):
    """When a worker that fails is left alone for a while, and its `fallback` asked at once."""

    on: bool = Field(default=True, description="`false`: every worker is called, always")
    failures: Count = Field(default=8, description="so many failures in a row are too many")
    share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.5, description="and so is this share of its last `window` calls"
    )
    window: Count = Field(default=50, description="how many calls are looked back on")
    cooling_seconds: Seconds = Field(
        default=5.0,
        description="how long it is left alone, until one call is tried; doubled whenever that "
        "fails",
    )
    longest_cooling_seconds: Seconds = Field(
        default=120.0, description="the longest that it is left alone"
    )


class LimitsTable(Table):
    """What a worker can take."""

    concurrency: Count | None = Field(default=None, description="calls at the same time")
    requests_per_minute: Count | None = Field(default=None, description="calls a minute")
    tokens_per_minute: Tokens | None = Field(default=None, description="tokens a minute")
    timeout_seconds: Seconds | None = Field(
        default=None, description="the longest that a reply may take; 300 when left out"
    )
    context_window: Tokens | None = Field(
        default=None, description="tokens of input and output together; else the catalogue's"
    )
    max_output_tokens: Tokens | None = Field(
        default=None, description="the most output tokens; else the catalogue's"
    )


class WorkerTable(Table):
    """One worker of the pool. The order of workers is the order of their ids in plans."""

    name: Name = Field(description="how plans and people call it; unique in the pool")
    provider: Name = Field(
        description="who serves it: a vendor's name (`openai`, `anthropic`, `google`, "
        "`openrouter`, `ollama`, …), `openai-compatible`, `llamacpp`, `transformers`, `scripted`, "
        "or `podium` for the conductor itself, whose steps are nested runs"
    )
    model: Name | None = Field(
        default=None,
        description="the vendor's id, or weights by name or `file:PATH`, relative to this file; "
        "`name` when left out",
    )
    description: str | None = Field(
        default=None, description="the one line by which a conductor chooses; else the catalogue's"
    )
    price: PriceTable | None = Field(
        default=None, description="USD per million tokens; else the catalogue's, else unknown"
    )
    limits: LimitsTable = Field(default=LimitsTable(), description="what it can take")
    capabilities: Capabilities | None = Field(
        default=None, description="what it can do, as a whole; else the catalogue's"
    )
    fallback: Name | None = Field(
        default=None, description="the worker that takes over a step when this one fails"
    )
    base_url: Name | None = Field(
        default=None,
        description="its address, where it is not the vendor's own; the vendor's key is "
        "then sent only if `key_env` says so",
    )
    key_env: VariableName | None = Field(
        default=None,
        description="the environment variable that holds its key; else the vendor's usual one",
    )
    options: dict[str, Any] = Field(
        default={}, description="the vendor's own extras, added to every request"
    )
    hedge: HedgeTable | None = Field(
        default=None,
        description="when another is asked beside it, for it takes long; when left out, never",
    )
    faults: FaultsTable | None = Field(
        default=None,
        description="for tests and rehearsals alone: what is to go wrong with its calls",
    )

    def anchored(self, directory: Path) -> WorkerTable:
        """This worker with the files of its weights counted from that directory."""
        if self.provider not in (WEIGHTS_PROVIDER, BATCHING_PROVIDER):
            return self
        model = self.model or self.name
        changes: dict[str, Any] = {}
        if (weights := anchored_weights(model, directory)) != model:
            changes["model"] = weights
        if "options" in self.model_fields_set:
            changes["options"] = anchored_options(self.options, self.provider, directory)
        return self.model_copy(update=changes)


class ConfigFile(Table):
    """A whole file."""

    conductor: ConductorTable = ConductorTable()
    mini: RouterTable = RouterTable()
    budget: BudgetTable = BudgetTable()
    pool: PoolTable = PoolTable()
    retry: RetryTable = RetryTable()
    breaker: BreakerTable = BreakerTable()
    store: StoreTable = StoreTable()
    server: ServerTable = ServerTable()
    mcp: dict[str, McpTable] = Field(default={})
    guardrail: tuple[GuardrailTable, ...] = Field(default=(), strict=False)
    worker: tuple[WorkerTable, ...] = Field(default=(), strict=False)

    @property
    def planner(self) -> WorkerTable | None:
        """The worker of this file that plans, where one is named."""
        return next((worker for worker in self.worker if worker.name == self.conductor.model), None)

    def overlaid(self, pool: ConfigFile) -> ConfigFile:
        """This file with every table that a pool file has in place of its own. A router was
        trained for its workers, so it goes with them."""
        replaced = {name: getattr(pool, name) for name in pool.model_fields_set}
        if "worker" in replaced:
            replaced.setdefault("mini", RouterTable())
        return self.model_copy(update=replaced)

    def completed(self, pool: ConfigFile) -> ConfigFile:
        """This file with a pool file's workers, and with its values for every key left out."""
        written = self.model_fields_set - {"worker", "mcp", "guardrail"}
        tables = {name: getattr(self, name) for name in written}
        said = {
            name: getattr(pool, name).model_copy(
                update={key: getattr(table, key) for key in table.model_fields_set}
            )
            for name, table in tables.items()
        }
        both = {
            "mcp": {**pool.mcp, **self.mcp},
            "guardrail": (*pool.guardrail, *self.guardrail),
        }
        return pool.model_copy(update={**said, **both})

    def anchored(self, directory: Path) -> ConfigFile:
        """This file with the paths in it counted from the directory it lies in."""
        changed = {
            "conductor": self.conductor.anchored(directory),
            "mini": self.mini.anchored(directory),
            "store": self.store.anchored(directory),
            "server": self.server.anchored(directory),
            "mcp": {name: table.anchored(directory) for name, table in self.mcp.items()},
            "worker": tuple(worker.anchored(directory) for worker in self.worker),
        }
        written = {name: table for name, table in changed.items() if name in self.model_fields_set}
        return self.model_copy(update=written)


def table_in(annotation: Any) -> type[BaseModel] | None:
    """The table inside `Table`, `Table | None` or `tuple[Table, ...]`, if it is one of these."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(table_in, get_args(annotation))), None)
