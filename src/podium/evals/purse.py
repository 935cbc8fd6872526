"""The purse: what a whole evaluation may cost, and when to stop because of it.

A task's cost is known when it is done. So that the cap holds although several are under way, a
task is begun only where the purse could pay for it and for all the others under way, each at the
price of the strategy's dearest so far; the first of a strategy is begun alone. Replies that were
kept cost nothing.
"""

from __future__ import annotations


class Purse:
    """Money for an evaluation; with no cap there is no end to it. `spent` is what was paid in
    all, before this process as well."""

    def __init__(self, cap_usd: float | None = None) -> None:
        self.cap_usd = cap_usd
        self.spent = 0.0
        self._dearest = 0.0
        self._under_way = 0

    def turn(self) -> None:
        """Another strategy's turn: what its tasks cost is not known yet."""
        self._dearest = 0.0

    @property
    def is_blind(self) -> bool:
        """Whether there is a cap, and nothing to tell by what a task will cost."""
        return self.cap_usd is not None and self._dearest == 0.0

    @property
    def is_enough(self) -> bool:
        """Whether one more task may be begun."""
        if self.cap_usd is None:
            return True
        if self.spent >= self.cap_usd:
            return self.cap_usd == self.spent == 0.0  # free workers are asked with an empty purse
        return self.spent + (self._under_way + 1) * self._dearest <= self.cap_usd

    def begin(self) -> None:
        """A task is begun."""
        self._under_way += 1

    def end(self, paid_usd: float) -> None:
        """A task is done, and cost that much."""
        self._under_way -= 1
        self.note(paid_usd)

    def note(self, paid_usd: float) -> None:
        """A task that was done earlier cost that much."""
        self.spent += paid_usd
        self._dearest = max(self._dearest, paid_usd)
