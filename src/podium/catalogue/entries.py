"""One entry of the catalogue, checked as it is read.

Configuration writes prices in the same form, so the form of a price is here too. Finding an
entry is the catalogue's business.
"""

from __future__ import annotations

import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from podium.pool import Capability
from podium.usage import Price

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
