"""Finding a model in the catalogue, by its id, an alias, or a dated snapshot of either."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Final

from podium.catalogue.entries import CatalogueEntry, CatalogueFile
from podium.pool import Capability

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
        text = resources.files("podium.catalogue").joinpath("models.toml").read_text("utf-8")
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
