"""How Podium was called, so that the commands in its hints can be pasted into the same shell."""

from __future__ import annotations

import os
import re
import shlex
from functools import cache
from typing import Final

CALLED_AS: Final = "PODIUM_CALLED_AS"
"""The variable in which a clone's own `./podium` says how it was called."""

USUAL: Final = "podium"


def program() -> str:
    """What a person writes to call Podium again: `podium`, or `./podium` in a clone."""
    return shlex.quote(os.environ.get(CALLED_AS) or USUAL)


def as_called(text: str) -> str:
    """The text with its commands as a person has to write them here."""
    return _command().sub(lambda _: program(), text) if USUAL in text else text


@cache
def _command() -> re.Pattern[str]:
    """The program's name where one of its commands follows."""
    from podium.cli.app import COMMANDS  # which needs this module's users itself

    return re.compile(rf"(?<![\w./-]){USUAL}(?= (?:{'|'.join(COMMANDS)})\b)")
