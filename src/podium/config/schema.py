"""The form of `podium.toml` and of pool files.

Validators check one table at a time; `resolve` checks tables together. The descriptions are the
documentation: `scripts/reference.py` prints them into `docs/reference/configuration.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from podium._util.files import read_toml
from podium._util.tables import Dollars, Table, Tokens
from podium.conductors.prompt import PromptStyle
from podium.config.guardrails import GuardrailSettings
from podium.config.problems import find_secret, secret_problem, suggest, validation_problem
from podium.config.workers import (
    Count,
    Days,
    FilePath,
    Name,
    Seconds,
    Share,
    VariableName,
    WorkerTable,
    absolute_options,
    absolute_path,
    absolute_weights,
)
from podium.core.errors import ConfigError
from podium.core.workflow import DEFAULT_MAX_STEPS
from podium.workers.mcp import DEFAULT_SECONDS

ConductorKind = Literal["model", "rules", "router", "fixed", "evolved"]
LogForm = Literal["text", "json"]
OnPoolChange = Literal["refuse", "narrow"]
"""The action where the pool is not the one of the training: a worker of another name or model."""

KIND_OF_KEY: Final[Mapping[str, ConductorKind]] = {
    "model": "model",
    "options": "model",
    "temperature": "model",
    "prompt": "model",
    "few_shot": "model",
    "fallback": "model",
    "overlap": "model",
    "speculate": "model",
    "workflow": "fixed",
    "coordinator": "evolved",
}
"""By key of `[conductor]`: the only kind that uses it."""

_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://([^/@\s?#:*\[\]]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
"""Scheme, host and port of a web page."""

_MCP_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9_-]{0,30}[a-z0-9])?")

Text = Annotated[str, Field(min_length=1)]


class ConductorTable(Table):
    """Which conductor plans, and how much."""

    kind: ConductorKind = Field(
        default="model",
        description="`model`: a model is asked to plan; `rules`: three workflows chosen by words "
        "in the question; `router`: one worker, no plan; `fixed`: always the same workflow; "
        "`evolved`: a trained coordinator picks a worker and a role, turn by turn",
    )
    model: Name | None = Field(
        default=None,
        description="with `model`: the planner, as a worker's name, `provider/model`, or "
        "`embedded/…`, one that Podium ships; by default the worker that the catalogue ranks "
        "first, else the pool's best",
    )
    workflow: FilePath | None = Field(
        default=None, description="with `fixed`: the workflow's JSON file, relative to this one"
    )
    coordinator: FilePath | None = Field(
        default=None,
        description="with `evolved`: the directory that `podium lab evolve` wrote, relative to "
        "this file",
    )
    options: dict[str, Any] = Field(
        default={},
        description="with a `model` that is `provider/model`: its options, as those of a worker",
    )
    max_steps: Count = Field(
        default=DEFAULT_MAX_STEPS, description="the most steps that a plan may have"
    )
    rounds: Count = Field(
        default=1,
        description="the most rounds: after each, the conductor accepts the answer or replans; "
        "with `evolved` the most turns, by default as many as in training",
    )
    temperature: Annotated[float, Field(ge=0, le=2)] = Field(
        default=0.2, description="with `model`: sent where the model accepts it"
    )
    prompt: PromptStyle = Field(
        default="full",
        description=(
            "with `model`: `compact` for very small models, `trained` for models trained to plan "
            "with it"
        ),
    )
    few_shot: bool = Field(
        default=True, description="with `model`: show worked examples; `trained` has none"
    )
    fallback: Name | None = Field(
        default=None,
        description="with `model`: the worker that answers alone where there is no plan; by "
        "default the pool's best",
    )
    overlap: bool = Field(
        default=True,
        description="with `model`: steps begin while the plan is still being written; those that "
        "the finished plan lacks are cancelled, and their cost counts",
    )
    speculate: bool = Field(
        default=False,
        description="with `model`: the `fallback` answers the question while it is planned; a plan "
        "of one step for it uses that answer, any other cancels it, and its cost counts",
    )

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Self:
        for key, kind in KIND_OF_KEY.items():
            if key in self.model_fields_set and self.kind != kind:
                raise ValueError(
                    f'{key} has no effect with kind = "{self.kind}"; drop it, or set '
                    f'kind = "{kind}"'
                )
        if "few_shot" in self.model_fields_set and self.prompt == "trained":
            raise ValueError(
                'few_shot has no effect with prompt = "trained": a trained model is shown no '
                "examples; drop it"
            )
        if self.kind == "fixed" and self.workflow is None:
            raise ValueError('workflow is missing; kind = "fixed" needs one')
        if self.kind == "evolved" and self.coordinator is None:
            raise ValueError(
                'coordinator is missing; kind = "evolved" needs the directory that '
                "`podium lab evolve` wrote"
            )
        if self.options and (secret := find_secret(self.options, "options")):
            raise ValueError(secret_problem(secret))
        provider, slash, weights = (self.model or "").partition("/")
        if not slash:
            return self
        changes = {
            "model": f"{provider}/{absolute_weights(weights, provider, info)}",
            "options": absolute_options(self.options, provider, info),
        }
        changed = {name: value for name, value in changes.items() if value != getattr(self, name)}
        return self.model_copy(update=changed) if changed else self


class RouterTable(Table):
    """The choice of the one worker that answers in the mini tier."""

    router: FilePath | None = Field(
        default=None,
        description=(
            "the file of a learned router, relative to this one; by default the cheapest capable "
            "worker answers"
        ),
    )
    confidence: Share = Field(
        default=0.5,
        description=(
            "with `router`: choose among workers of at least this confidence; without any, the "
            "conductor plans"
        ),
    )
    quality_bias: Share = Field(
        default=0.5,
        description=(
            "with `router`: quality over cost, from 0, the cheapest, to 1, the best; a request "
            "may set its own"
        ),
    )
    on_pool_change: OnPoolChange = Field(
        default="refuse",
        description=(
            "with `router`, where the pool changed since training: `refuse`, or `narrow` the "
            "choice to the workers that both have, with a warning"
        ),
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        for key in sorted(self.model_fields_set - {"router"}):
            if self.router is None:
                raise ValueError(f"{key} has no effect without mini.router; drop it, or name one")
        return self


class BudgetTable(Table):
    """The caps of each run, nested runs included. Only `usd` has a default."""

    usd: Dollars | None = Field(
        default=None,
        description="US dollars; by default 1 where workers cost money and all prices are known",
    )
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
    initial_wait_seconds: Seconds = Field(
        default=0.5, description="wait before the second call; doubled before each further one"
    )
    max_wait_seconds: Seconds = Field(default=30.0, description="the longest of these waits")
    max_retry_after_seconds: Seconds = Field(
        default=60.0,
        description="a longer `Retry-After` of the provider counts as a failure",
    )


class BreakerTable(Table):
    """When a failing worker is not called for a while, and its `fallback` takes over at once."""

    enabled: bool = Field(default=True, description="`false`: never stop calling a worker")
    consecutive_failures: Count = Field(
        default=8, description="failures in a row that open the circuit"
    )
    failure_rate: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.5, description="share of failures among the last `window` calls that opens it"
    )
    window: Count = Field(
        default=50, description="the number of latest calls that `failure_rate` looks at"
    )
    cooldown_seconds: Seconds = Field(
        default=5.0,
        description="time without calls, until one call probes the worker; doubled after each "
        "failed probe",
    )
    max_cooldown_seconds: Seconds = Field(
        default=120.0, description="the longest time without calls"
    )


class StoreSettings(Table):
    """The store of runs."""

    path: Annotated[Path, Field(strict=False)] | None = Field(
        default=None,
        description="an SQLite file, relative to this one; by default in the user's data directory",
    )
    url: str = Field(default="", description="a database URL, instead of `path`", repr=False)
    lease_seconds: Seconds = Field(
        default=60.0,
        description=(
            "a process that misses its heartbeat for so long loses its runs; the same for all "
            "that share a store"
        ),
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.path and self.url:
            raise ValueError("path and store.url exclude each other; keep one")
        return self

    @field_validator("path")
    @classmethod
    def _resolve(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        if path is None or info.context is None:
            return path
        return Path(absolute_path(str(path), info))


class ServerSettings(Table):
    """Settings of `podium serve`; its command line options take precedence."""

    host: Name = Field(
        default="127.0.0.1", description="the address to listen on; `0.0.0.0`: on every one"
    )
    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=7755, description="the port; 0: any that is free"
    )
    workers: Count = Field(default=1, description="server processes on the same port")
    require_keys: bool = Field(
        default=False, description="require an API key; `podium keys` creates them"
    )
    allowed_hosts: Annotated[tuple[Name, ...], Field(strict=False)] = Field(
        default=(),
        description="further names of this host, as behind a proxy; only needed without API keys",
    )
    cors: Annotated[tuple[Name, ...], Field(strict=False)] = Field(
        default=(),
        description=(
            "origins of web pages that may use the API, such as `http://localhost:3000`; `*`, "
            "only with `require_keys`: every page"
        ),
    )
    in_flight: Count = Field(
        default=1000, description="requests that are answered at the same time, in each process"
    )
    queue: Annotated[int, Field(ge=0)] = Field(
        default=1000, description="requests that wait for their turn; more are refused"
    )
    body_megabytes: Count = Field(default=32, description="the largest request body")
    keep_alive_seconds: Seconds = Field(
        default=15.0, description="seconds of silence after which a stream sends a keep-alive"
    )
    drain_seconds: Seconds = Field(
        default=30.0, description="how long runs may continue when the server stops"
    )
    recover: bool = Field(
        default=True,
        description="resume runs whose process died: this server's before a restart, or another "
        "one's on the same store",
    )
    keep_days: Days | None = Field(
        default=None, description="delete runs older than that; by default they are kept"
    )
    log: LogForm | None = Field(
        default=None,
        description="`text`, to read, or `json`, for programs; by default text on a terminal "
        "and JSON elsewhere",
    )
    allow_python_workers: bool = Field(
        default=False,
        description="run programs that clients and models wrote, in the sandbox: keep the pool's "
        '`provider = "python"` workers',
    )
    log_prompts: bool = Field(default=False, description="log questions and answers as well")
    strict: bool = Field(
        default=False,
        description="refuse requests with unknown keys, instead of ignoring these and naming them "
        "in the response header `X-Podium-Ignored`",
    )
    allow_private_image_urls: bool = Field(
        default=False,
        description="clients may send image URLs on private networks",
    )
    traces: bool = Field(
        default=False,
        description="send OpenTelemetry traces (extra `otel`), where `OTEL_EXPORTER_OTLP_ENDPOINT` "
        "says",
    )
    experiment_dirs: Annotated[tuple[FilePath, ...] | None, Field(strict=False)] = Field(
        default=None,
        description=(
            "directories of trainings and evaluations for the page Experiments, relative to this "
            "file; default `measured` and `trained` in the working directory"
        ),
    )

    @field_validator("cors")
    @classmethod
    def _check_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if origin != "*" and _ORIGIN.fullmatch(origin) is None:
                raise ValueError(
                    f"{origin!r} is not an origin; give scheme, host and port in lower case, such "
                    f"as http://localhost:3000, without a path"
                )
        return origins


def _absolute_program(command: str, info: ValidationInfo) -> str:
    return absolute_path(command, info) if "/" in command else command


class McpTable(Table):
    """An MCP server (Model Context Protocol); workers call its tools `NAME__TOOL`."""

    command: Annotated[Text, AfterValidator(_absolute_program)] | None = Field(
        default=None,
        description="the program to start; with a slash in it, relative to this file",
    )
    args: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(), description="with `command`: its arguments"
    )
    env: Annotated[tuple[VariableName, ...], Field(strict=False)] = Field(
        default=(),
        description=(
            "with `command`: the environment variables that it gets besides `PATH`, `HOME` and "
            "the like"
        ),
    )
    url: Text | None = Field(
        default=None, description="the address of a server that listens (streamable HTTP)"
    )
    key_env: VariableName | None = Field(
        default=None,
        description="with `url`: the environment variable that holds the key, which is sent as a "
        "bearer token",
    )
    tools: Annotated[tuple[Text, ...], Field(strict=False)] | None = Field(
        default=None,
        description="the tools that workers may use, as the server names them; by default all",
    )
    seconds: Seconds = Field(
        default=DEFAULT_SECONDS, description="the longest that it may take to start or to answer"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        for key, wanted in (("args", "command"), ("env", "command"), ("key_env", "url")):
            if key in self.model_fields_set and getattr(self, wanted) is None:
                raise ValueError(f"{key} has no effect without {wanted}; drop it")
        parts = urlsplit(self.url or "")
        if self.url and (parts.scheme not in ("http", "https") or not parts.netloc):
            raise ValueError("url: expected an address, such as https://example.com/mcp")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError(
                "url: expected an address without @, ? and #; a key goes into an environment "
                'variable, named with key_env = "…"'
            )
        return self


class ConfigFile(Table):
    """A whole file."""

    conductor: ConductorTable = ConductorTable()
    mini: RouterTable = RouterTable()
    budget: BudgetTable = BudgetTable()
    pool: PoolTable = PoolTable()
    retry: RetryTable = RetryTable()
    breaker: BreakerTable = BreakerTable()
    store: StoreSettings = StoreSettings()
    server: ServerSettings = ServerSettings()
    mcp: dict[str, McpTable] = Field(default={})
    guardrail: tuple[GuardrailSettings, ...] = Field(default=(), strict=False)
    worker: tuple[WorkerTable, ...] = Field(default=(), strict=False)

    @field_validator("mcp")
    @classmethod
    def _check_mcp(cls, tables: dict[str, McpTable]) -> dict[str, McpTable]:
        for name, table in tables.items():
            if not _MCP_NAME.fullmatch(name) or "__" in name:
                raise ValueError(
                    f"{name}: expected a name of at most 32 lower-case letters, digits, - and "
                    f"single _, as in [mcp.web-search]"
                )
            if (table.command is None) == (table.url is None):
                raise ValueError(
                    f"{name}: expected one of command (a program to start) and url (a server that "
                    f"listens), got {'none' if table.url is None else 'both'}"
                )
        return tables

    @property
    def planner(self) -> WorkerTable | None:
        """The worker of this file that plans, where one is named."""
        return next((worker for worker in self.worker if worker.name == self.conductor.model), None)

    def overlay(self, pool: ConfigFile) -> ConfigFile:
        """Return this file with the tables of a pool file instead of its own.

        A router was trained for its workers, so it goes with them.
        """
        replaced = {name: getattr(pool, name) for name in pool.model_fields_set}
        if "worker" in replaced:
            replaced.setdefault("mini", RouterTable())
        return self.model_copy(update=replaced)

    def complete_from(self, pool: ConfigFile) -> ConfigFile:
        """Return this file with a pool file's workers, and its values for every key left out."""
        written = self.model_fields_set - {"worker", "mcp", "guardrail"}
        tables = {
            name: getattr(pool, name).model_copy(
                update={key: getattr(table, key) for key in table.model_fields_set}
            )
            for name, table in ((name, getattr(self, name)) for name in written)
        }
        both = {
            "mcp": {**pool.mcp, **self.mcp},
            "guardrail": (*pool.guardrail, *self.guardrail),
        }
        return pool.model_copy(update={**tables, **both})


POOLS: Final = Path(__file__).with_name("pools")
"""The pools that come with Podium, which are also known by their names."""


def find_pool(path: Path) -> Path:
    """Return the pool file of a name such as `tiny`, or the path itself."""
    known = {pool.stem: pool for pool in POOLS.glob("*.toml")}
    name = str(path)
    if name not in known and name == path.stem and not path.exists():
        raise ConfigError(f"{name}: there is no such file or pool; {suggest(name, known)}")
    return known.get(name, path)


def read_file(path: Path) -> ConfigFile:
    """Read and validate a file's tables; the path may be the name of a pool of Podium's."""
    path = find_pool(path)
    try:
        return ConfigFile.model_validate(read_toml(path), context=path.absolute().parent)
    except ValidationError as error:
        raise validation_problem(path, error, ConfigFile) from None


def read_files(paths: Iterable[Path]) -> tuple[ConfigFile, WorkerTable | None]:
    """Read a configuration and a pool file laid over it; return the planner that they name too."""
    tables, planner = ConfigFile(), None
    for path in paths:
        tables = tables.overlay(read_file(path))
        planner = tables.planner or planner
    return tables, planner
