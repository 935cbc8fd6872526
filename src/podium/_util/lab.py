"""The border to `podium_lab`, the optional package of études and experiments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from podium.core.errors import ConfigError, install_command

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


@contextmanager
def lab_extra() -> Iterator[None]:
    """Import from `podium_lab` inside this block; ConfigError names the extra if it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "podium":
            raise
        raise ConfigError(
            f"études and experiments need the extra 'lab' ({error.name} is not installed): "
            f"{install_command('lab')}"
        ) from error
