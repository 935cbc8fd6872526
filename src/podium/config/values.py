"""What single keys of a file may hold, for every table that has such keys."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

Count = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Days = Seconds
Name = Annotated[str, Field(min_length=1, pattern=r"^\S(.*\S)?$")]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
PoolChanged = Literal["refuse", "narrow"]
"""What to do where the pool is another one than somebody was trained with. A worker is the same if
its name and its model are."""
