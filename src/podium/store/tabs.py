"""What requests in flight take of a key's budget, where several processes share the store.

Each request has a tab, which is a row that every process sees: what its calls have used and nobody
was charged for yet, and what is to be left to it besides. A tab is as good as its lease, which its
process renews; when that has run out, what the tab holds for calls counts no longer, but what they
had used does, until somebody has charged it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from podium.store.keys import NOTHING, Charged, Rules, Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class TabRow:
    """A tab as others see it. `used` is what its calls have used, and `needed` has what those of
    its `calls` that are in flight may use besides; `granted` is what it could need by the last
    word of the store. What others must leave to the request is `claimed` as they begin requests,
    and `taken` as they make calls: what it will probably use, or what it has used or needs where
    that is more. `run_id` is the run on record that is charged in the end, or empty; a tab that
    `takes_over` counts what the run had used before, in the place of the tab that it had then.
    """

    id: str
    key_id: str
    model: str
    run_id: str = ""
    takes_over: bool = False
    used: Charged = NOTHING
    claimed: Charged = NOTHING
    taken: Charged = NOTHING
    needed: Charged = NOTHING
    granted: Charged = NOTHING
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What the tabs of other processes with the same key claim and take, and how many calls they
    have in flight."""

    claimed: Charged = NOTHING
    taken: Charged = NOTHING
    calls: int = 0


NOWHERE: Final = Elsewhere()


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """How the key stands now, and which tabs got what: what each that has grown needs, and what
    each that was opened claims."""

    standing: Standing
    elsewhere: Elsewhere
    granted: Mapping[str, Charged]


def most(one: Charged, other: Charged) -> Charged:
    """Of money and of tokens, whichever is more."""
    return Charged(max(one.usd, other.usd), max(one.tokens, other.tokens))


class TabStore(Protocol):
    """The tabs of one process among several. Every method raises `StoreError` when the store
    cannot do its work."""

    async def draw(
        self,
        key_id: str,
        rules: Rules,
        day: str,
        *,
        opened: Sequence[TabRow] = (),
        grown: Sequence[TabRow] = (),
        changed: Sequence[TabRow] = (),
    ) -> Drawn:
        """Write tabs of one key, so far as its caps have room beside the tabs of every process.

        One that is `opened` claims what it asks for, or what is left where that is less, but is
        not granted where nothing is. One that has `grown` gets all that it needs, or no more than
        it had: what it has used counts either way. One that was `changed` needs no more than
        before. This process's lease is renewed where it has run out, or little of it is left.
        """
        ...

    async def renew(self) -> None:
        """The tabs of this process are good for another lease."""
        ...

    async def sweep(self) -> int:
        """Settle the tabs whose lease has run out, and say how many: what was used is charged,
        unless it is a run's that goes on; the end of that run will charge it."""
        ...
