"""The border to `podium_lab`, the optional package of études and experiments."""

from __future__ import annotations

from functools import partial
from typing import Final

from podium.core.errors import needs_extra

ETUDES: Final = "etudes"
"""The suite of études."""

EVERYDAY: Final = "everyday"
"""The suite of everyday questions, and their kind."""

EVERYDAY_100: Final = "everyday-100"
"""The suite of a hundred everyday questions that programs grade."""

UNSURE: Final = "I do not know."
"""The reply of a worker of the études to what is not its skill; votes do not count it."""

ORACLE: Final = "oracle"
"""The provider of the études' perfect workers."""


lab_extra: Final = partial(needs_extra, "lab", "the package podium_lab")
"""Import from `podium_lab` in a block of this; ConfigError names the extra if it is missing."""
