"""The tables `[[worker]]`: a worker and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from podium._util.tables import Table, Tokens
from podium.config.problems import check_address, find_secret, secret_problem, suggest
from podium.core.pool import CONDUCTOR_PROVIDER, PYTHON_PROVIDER
from podium.workers.balanced import Balance
from podium.workers.catalogue import Capabilities, PriceTable
from podium.workers.endpoints import KNOWN_ENDPOINTS
from podium.workers.sandbox import ProgramLimits

Count = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Days = Seconds
Name = Annotated[str, Field(min_length=1, pattern=r"^\S(.*\S)?$")]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]

LLAMACPP_PROVIDER: Final = "llamacpp"
"""The provider of weights in GGUF files, those that Podium downloads included."""

TRANSFORMERS_PROVIDER: Final = "transformers"
"""The provider whose models may be directories, as their adapters are."""


def absolute_path(path: str, info: ValidationInfo) -> str:
    """Resolve a path against the directory of the file that is read, if one is."""
    return path if info.context is None else str(info.context / Path(path).expanduser())


FilePath = Annotated[Name, AfterValidator(absolute_path)]


def absolute_weights(name: str, provider: str, info: ValidationInfo) -> str:
    """Resolve weights that are named as a file; `podium.workers.local.sources` has the forms."""
    is_file = name.startswith("file:") or (name.endswith(".gguf") and not name.startswith("hf:"))
    if provider not in (LLAMACPP_PROVIDER, TRANSFORMERS_PROVIDER) or not is_file:
        return name
    return f"file:{absolute_path(name.removeprefix('file:'), info)}"


def absolute_options(
    options: dict[str, Any], provider: str, info: ValidationInfo
) -> dict[str, Any]:
    """Resolve the adapter in a worker's options."""
    adapter = options.get("adapter")
    if not isinstance(adapter, str) or info.context is None:
        return options
    if provider == TRANSFORMERS_PROVIDER:
        return {**options, "adapter": absolute_path(adapter.removeprefix("file:"), info)}
    return {**options, "adapter": absolute_weights(adapter, provider, info)}


OPENAI_COMPATIBLE: Final = "openai-compatible"
"""The provider whose address must be given."""

PROVIDERS: Final = (
    *KNOWN_ENDPOINTS,
    OPENAI_COMPATIBLE,
    LLAMACPP_PROVIDER,
    TRANSFORMERS_PROVIDER,
    "scripted",
    PYTHON_PROVIDER,
    CONDUCTOR_PROVIDER,
)

PDF_PROVIDERS: Final = frozenset(
    {"anthropic", "azure", "bedrock", "google", "openai", "openrouter", "vertex"}
)
"""Their models that see images read PDFs too."""

_ADDRESS_KEYS: Final = ("base_url", "key_env", "deployments")
_WHY_CONDUCTOR: Final = "its steps are nested runs, whose calls have the models, prices and limits"
_WHY_SCRIPTED: Final = "it says what options.reply holds, and reaches nothing"
_WHY_LLAMACPP: Final = "its weights run on this machine, in a process that Podium starts"
_WHY_PYTHON: Final = "it runs the programs of other steps on this machine"
_WHY_TRANSFORMERS: Final = "its weights run within Podium"

UNUSED_KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    CONDUCTOR_PROVIDER: dict.fromkeys(
        ("model", "price", "limits", *_ADDRESS_KEYS, "options"), _WHY_CONDUCTOR
    ),
    "scripted": dict.fromkeys(_ADDRESS_KEYS, _WHY_SCRIPTED),
    PYTHON_PROVIDER: dict.fromkeys(("model", "price", *_ADDRESS_KEYS), _WHY_PYTHON),
    LLAMACPP_PROVIDER: dict.fromkeys(_ADDRESS_KEYS, _WHY_LLAMACPP),
    TRANSFORMERS_PROVIDER: dict.fromkeys(_ADDRESS_KEYS, _WHY_TRANSFORMERS),
}
"""By provider: keys without effect, and why."""

ONLY_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "scripted": ("reply", "tool_reply", "tool_arguments"),
    PYTHON_PROVIDER: tuple(field.name for field in fields(ProgramLimits)),
}
"""All options of a provider that sends none of them on."""


class LimitsTable(Table):
    """Limits of a worker."""

    concurrency: Count | None = Field(default=None, description="calls at the same time")
    requests_per_minute: Count | None = Field(default=None, description="calls a minute")
    tokens_per_minute: Tokens | None = Field(default=None, description="tokens a minute")
    timeout_seconds: Seconds | None = Field(
        default=None, description="the longest that a reply may take; by default 300"
    )
    context_window: Tokens | None = Field(
        default=None, description="tokens of input and output together; else the catalogue's"
    )
    max_output_tokens: Tokens | None = Field(
        default=None, description="the most output tokens; else the catalogue's"
    )


class DeploymentTable(Table):
    """One of several deployments of a worker's model, such as a region or a second account."""

    name: Name | None = Field(
        default=None, description="its name in messages; by default its number, from 1"
    )
    base_url: Name | None = Field(default=None, description="its address; else the worker's")
    key_env: VariableName | None = Field(
        default=None, description="the environment variable that holds its key; else the worker's"
    )
    model: Name | None = Field(default=None, description="the model's id there; else the worker's")
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default=1.0, description='with `balance = "weighted"`: its share of the calls'
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.base_url:
            check_address(self.base_url, "base_url")
        return self


class WorkerTable(Table):
    """One worker of the pool. The order of workers is the order of their ids in plans."""

    name: Name = Field(description="its name in plans and messages; unique in the pool")
    provider: Name = Field(
        description="a vendor's name (`openai`, `anthropic`, `google`, `azure`, `bedrock`, "
        "`ollama`, …), `openai-compatible`, `llamacpp`, `transformers`, `python`, `scripted`, "
        "or `podium` for the conductor itself, whose steps are nested runs"
    )
    model: Name | None = Field(
        default=None,
        description="the vendor's id, or weights by name or `file:PATH`, relative to this file; "
        "by default `name`",
    )
    description: str | None = Field(
        default=None, description="the one line by which a conductor chooses; else the catalogue's"
    )
    price: PriceTable | None = Field(
        default=None, description="USD per million tokens; else the catalogue's, else unknown"
    )
    limits: LimitsTable = Field(default=LimitsTable(), description="its limits")
    capabilities: Capabilities | None = Field(
        default=None, description="all of its capabilities; else the catalogue's"
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
    deployments: tuple[DeploymentTable, ...] = Field(
        default=(),
        strict=False,
        description="several deployments of the model, `[[worker.deployments]]`: each call goes to "
        "one of them, and to the next when that fails",
    )
    balance: Balance = Field(
        default="least-latency",
        description="with `deployments`: `least-latency`, the one that begins to answer soonest, "
        "or `weighted`, in turn by their weights",
    )
    options: dict[str, Any] = Field(
        default={}, description="the vendor's own extras, added to every request"
    )

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Self:
        if self.provider not in PROVIDERS:
            raise ValueError(
                f"provider: no provider is called {self.provider!r}; "
                f"{suggest(self.provider, PROVIDERS)}"
            )
        provider = f'provider = "{self.provider}"'
        for key, why in UNUSED_KEYS.get(self.provider, {}).items():
            if key in self.model_fields_set:
                raise ValueError(f"{key} has no effect with {provider}: {why}; drop it")
        for option in self.options:
            known = ONLY_OPTIONS.get(self.provider, (option,))
            if option not in known:
                hint = suggest(option, known)
                raise ValueError(f"options.{option} has no effect with {provider}; {hint}")
        addresses = [one.base_url for one in self.deployments] or [None]
        if self.provider == OPENAI_COMPATIBLE and not self.base_url and None in addresses:
            raise ValueError(
                f"base_url is missing; {OPENAI_COMPATIBLE!r} needs the server's address, such "
                f'as "http://127.0.0.1:8000/v1"'
            )
        if self.base_url:
            check_address(self.base_url, "base_url")
        self._check_deployments()
        if secret := find_secret(self.options, "options"):
            raise ValueError(secret_problem(secret))
        changes: dict[str, Any] = {}
        model = self.model or self.name
        if (weights := absolute_weights(model, self.provider, info)) != model:
            changes["model"] = weights
        if (options := absolute_options(self.options, self.provider, info)) != self.options:
            changes["options"] = options
        return self.model_copy(update=changes) if changes else self

    def _check_deployments(self) -> None:
        if not self.deployments:
            if "balance" in self.model_fields_set:
                raise ValueError("balance has no effect without deployments; drop it")
            return
        names = [one.name or str(number) for number, one in enumerate(self.deployments, start=1)]
        if len(set(names)) < len(names):
            raise ValueError("deployments: two have the same name; give one another name")
        for one in self.deployments:
            if "weight" in one.model_fields_set and self.balance != "weighted":
                raise ValueError(
                    'deployments: weight has no effect without balance = "weighted"; add it, or '
                    "drop the weights"
                )
