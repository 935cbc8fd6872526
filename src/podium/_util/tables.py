"""The base of the tables that TOML files have, and the types of amounts in them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Tokens = Annotated[int, Field(gt=0)]


class Table(BaseModel):
    """A frozen TOML table that rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
