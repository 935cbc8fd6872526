"""The purse: what a whole evaluation may cost, and when to stop because of it.

A task's cost is known when it is done. So that the cap holds although several are under way, a
task is begun only where the purse could pay for it and for all the others under way, each at the
price of the strategy's dearest so far; the first of a strategy is begun alone. Replies that were
kept cost nothing, and count as if they had to be paid for only where the next task's price is
guessed: its replies may not be kept.
"""

from __future__ import annotations


class Purse:
    """Money for an evaluation; with no cap there is no end to it. `spent` is what was paid in
    all, before this process as well."""

    def __init__(self, cap_usd: float | None = None) -> None:
        self.cap_usd = cap_usd
        self.spent = 0.0
        self._dearest: float | None = None
        self._under_way = 0

    def turn(self) -> None:
        """Another strategy's turn: what its tasks cost is not known yet."""
        self._dearest = None

    @property
    def is_blind(self) -> bool:
        """Whether there is a cap, and nothing to tell by what a task will cost."""
        return self.cap_usd is not None and self._dearest is None

    @property
    def is_enough(self) -> bool:
        """Whether one more task may be begun."""
        if self.cap_usd is None:
            return True
        if self.spent >= self.cap_usd:
            return self.cap_usd == self.spent == 0.0  # free workers are asked with an empty purse
        return self.spent + (self._under_way + 1) * (self._dearest or 0.0) <= self.cap_usd

    def begin(self) -> None:
        """A task is begun."""
        self._under_way += 1

    def end(self, paid_usd: float, price_usd: float | None = None) -> None:
        """A task is done, and cost that much; `price_usd` is what it costs without kept replies,
        where that is known."""
        self._under_way -= 1
        self.spent += paid_usd
        self.note(paid_usd, price_usd)

    def note(self, paid_usd: float, price_usd: float | None = None) -> None:
        """A task of this strategy cost that much, now or in an earlier sitting, so the next one
        may too. It is not counted as spent by this."""
        self._dearest = max(self._dearest or 0.0, paid_usd, price_usd or 0.0)
