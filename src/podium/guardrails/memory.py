"""What guardrails remember of runs that wait for tools, until those go on in this process.

It is in memory alone, and bounded: what was taken out of a question is nowhere else. A run that
goes on in another process, or after very many others began to wait, is not remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from podium.guardrails.base import Hook

MOST_REMEMBERED: Final = 10_000


class HookMemory:
    """The hooks of runs that wait, by the guardrails' names."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._hooks: OrderedDict[str, dict[str, Hook]] = OrderedDict()

    def keep(self, run_id: str, hooks: dict[str, Hook]) -> None:
        """Remember the hooks of a run that waits."""
        self._hooks[run_id] = hooks
        while len(self._hooks) > self._most:
            self._hooks.popitem(last=False)

    def take(self, run_id: str) -> dict[str, Hook]:
        """The hooks of a run that goes on, which are not remembered any longer."""
        return self._hooks.pop(run_id, {})
