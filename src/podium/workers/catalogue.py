"""The catalogue of known models; the data is in `catalogue.toml`."""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Annotated, Any, Final

from pydantic import Field

from podium._util.tables import Dollars, Table, Tokens
from podium.core.pool import Capability
from podium.core.request import Price

Capabilities = Annotated[frozenset[Capability], Field(strict=False)]


class TokenRates(Table):
    """US dollars per million tokens."""

    input: Dollars = Field(description="input tokens")
    output: Dollars = Field(description="output tokens")
    cached: Dollars | None = Field(
        default=None, description="input read from the provider's cache; as `input` when left out"
    )
    cache_write: Dollars | None = Field(
        default=None, description="input written to the provider's cache; as `input` when left out"
    )
    cache_write_1h: Dollars | None = Field(
        default=None, description="input cached for an hour; as `cache_write` when left out"
    )


class LongInputRates(TokenRates):
    """Prices that replace the others if the input is long."""

    above_tokens: Tokens = Field(description="the input tokens beyond which these prices hold")


class PriceTable(TokenRates):
    """A price as written in a file."""

    long_input: LongInputRates | None = Field(
        default=None, description="what replaces these prices when the input is long"
    )

    def price(self) -> Price:
        long_input = Price(**self.long_input.model_dump()) if self.long_input else None
        return Price(**self.model_dump(exclude={"long_input"}), long_input=long_input)


class CatalogueEntry(Table):
    """One model of one provider."""

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
    planner_rank: Annotated[int, Field(gt=0)] | None = None
    retires: datetime.date | None = None


class CatalogueFile(Table):
    """The whole data file."""

    model: list[CatalogueEntry]
    default_capabilities: dict[str, Capabilities]


_SNAPSHOT: Final = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2})$")
"""The date suffix by which vendors pin a version of a model."""


_MAKERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"azure": ("openai",), "bedrock": ("anthropic",), "vertex": ("google", "anthropic")}
)
"""The makers of the models in a cloud that go by the makers' names there."""

_CLOUD_NAME: Final = re.compile(r"^(?:[a-z-]+\.)?anthropic\.|-v\d+(?::\d+)?$")
"""Bedrock's additions to a model's name: a group of regions, the maker and a version."""


class Catalogue:
    """The known models in file order: a provider's best choice first."""

    def __init__(
        self,
        entries: Iterable[CatalogueEntry],
        default_capabilities: Mapping[str, frozenset[Capability]] = MappingProxyType({}),
    ) -> None:
        self.entries = tuple(entries)
        self._default_capabilities = dict(default_capabilities)
        self._by_name: dict[tuple[str, str], CatalogueEntry] = {}
        for entry in self.entries:
            for name in (entry.id, *entry.aliases):
                if self._by_name.setdefault((entry.provider, name), entry) is not entry:
                    raise ValueError(f"two models of {entry.provider} are called {name!r}")

    @classmethod
    @cache
    def load(cls) -> Catalogue:
        text = resources.files("podium.workers").joinpath("catalogue.toml").read_text("utf-8")
        file = CatalogueFile.model_validate(tomllib.loads(text))
        return cls(file.model, file.default_capabilities)

    def lookup(self, provider: str, model: str) -> CatalogueEntry | None:
        exact = self._by_name.get((provider, model))
        known = exact or self._by_name.get((provider, _SNAPSHOT.sub("", model)))
        return known or self._lookup_resold(provider, model)

    def _lookup_resold(self, provider: str, model: str) -> CatalogueEntry | None:
        """Return the maker's entry of a model in a cloud, without its price and its dates."""
        for maker in _MAKERS.get(provider, ()):
            name = _CLOUD_NAME.sub("", model.replace("@", "-")) if maker != "openai" else model
            if entry := self.lookup(maker, name):
                changes = {"provider": provider, "id": model, "aliases": (), "default": False}
                return entry.model_copy(update={**changes, "price": None, "retires": None})
        return None

    def default_capabilities(self, provider: str) -> frozenset[Capability]:
        """Return the capabilities of a provider's models that the catalogue does not know."""
        return self._default_capabilities.get(provider, frozenset())

    def defaults(self, provider: str) -> tuple[CatalogueEntry, ...]:
        """Return the models to use if none is configured."""
        return tuple(
            entry for entry in self.entries if entry.provider == provider and entry.default
        )


__all__ = ["Catalogue", "CatalogueEntry", "PriceTable"]
