"""The catalogue: what Podium knows of models by name. The data is in `models.toml`."""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from podium.core.pool import Capability
from podium.core.usage import Price

Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Tokens = Annotated[int, Field(gt=0)]
Capabilities = Annotated[frozenset[Capability], Field(strict=False)]


class Table(BaseModel):
    """A TOML table: its values cannot change, and a key that it does not have is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Rates(Table):
    """US dollars per million tokens."""

    input: Dollars = Field(description="input tokens")
    output: Dollars = Field(description="output tokens")
    cached: Dollars | None = Field(
        default=None, description="input read from the provider's cache; as `input` when left out"
    )
    cache_write: Dollars | None = Field(
        default=None, description="input written to the provider's cache; as `input` when left out"
    )


class LongRates(Rates):
    """What replaces the prices of a whole call when its input is long."""

    over: Tokens = Field(description="the input tokens beyond which these prices hold")


class PriceTable(Rates):
    """A price as it is written in a file."""

    beyond: LongRates | None = Field(
        default=None, description="what replaces these prices when the input is long"
    )

    def price(self) -> Price:
        """The same as the domain has it."""
        beyond = Price(**self.beyond.model_dump()) if self.beyond else None
        return Price(**self.model_dump(exclude={"beyond"}), beyond=beyond)


class CatalogueEntry(Table):
    """What is known of one model at one provider."""

    provider: str
    id: str
    description: str
    checked: datetime.date
    source: str
    aliases: Annotated[tuple[str, ...], Field(strict=False)] = ()
    options: dict[str, Any] = Field(default_factory=dict)
    price: PriceTable | None = None
    context_window: Tokens | None = None
    max_output_tokens: Tokens | None = None
    capabilities: Capabilities = frozenset()
    default: bool = False
    conductor: Annotated[int, Field(gt=0)] | None = None
    retires: datetime.date | None = None


class CatalogueFile(Table):
    """The whole data file."""

    model: list[CatalogueEntry]
    assumed: dict[str, Capabilities]


_SNAPSHOT: Final = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2})$")
"""The date that vendors put behind a model's id to pin one version of it."""


class Catalogue:
    """The known models, in the order of the file: among a provider's, the best choice first."""

    def __init__(
        self,
        entries: Iterable[CatalogueEntry],
        assumed: Mapping[str, frozenset[Capability]] = MappingProxyType({}),
    ) -> None:
        self.entries = tuple(entries)
        self._assumed = dict(assumed)
        self._by_name: dict[tuple[str, str], CatalogueEntry] = {}
        for entry in self.entries:
            for name in (entry.id, *entry.aliases):
                if self._by_name.setdefault((entry.provider, name), entry) is not entry:
                    raise ValueError(f"two models of {entry.provider} are called {name!r}")

    @classmethod
    @cache
    def load(cls) -> Catalogue:
        """The catalogue that ships with Podium, read once."""
        text = resources.files("podium.workers").joinpath("catalogue.toml").read_text("utf-8")
        file = CatalogueFile.model_validate(tomllib.loads(text))
        return cls(file.model, file.assumed)

    def lookup(self, provider: str, model: str) -> CatalogueEntry | None:
        """What is known of that provider's model; None where nothing is."""
        exact = self._by_name.get((provider, model))
        return exact or self._by_name.get((provider, _SNAPSHOT.sub("", model)))

    def assumed(self, provider: str) -> frozenset[Capability]:
        """What a model of that provider can do when the catalogue does not know the model."""
        return self._assumed.get(provider, frozenset())

    def defaults(self, provider: str) -> tuple[CatalogueEntry, ...]:
        """The models that stand for the provider when nobody has chosen any."""
        return tuple(
            entry for entry in self.entries if entry.provider == provider and entry.default
        )


__all__ = ["Catalogue", "CatalogueEntry", "PriceTable"]
