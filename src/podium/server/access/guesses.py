"""Wrong keys: how many an address may show before it has to wait.

Keys cannot be guessed, but trying fills the log, keeps the store busy and would hide who has merely
a wrong key; so an address that has shown too many is told to come back. Whoever shows a key that
this process knows is let in all the same: they may share an address with somebody who guesses.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Final

from podium.store.buckets import Bucket

WRONG_A_MINUTE: Final = 100
"""Wrong keys that one address may show."""

MOST_ADDRESSES: Final = 10_000
"""Addresses that are remembered; the one that was quiet for longest is forgotten first."""


class Guesses:
    """Counts the wrong keys of each address."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def wait(self, address: str, now: float) -> float:
        """How many seconds must pass until that address may show a key again; 0 is now."""
        bucket = self._buckets.get(network_of(address))
        return 0.0 if bucket is None else bucket.wait(1, now)

    def add(self, address: str, now: float) -> None:
        """A wrong key was shown."""
        network = network_of(address)
        bucket = self._buckets.pop(network, None) or Bucket(WRONG_A_MINUTE, now)
        bucket.wait(1, now)
        bucket.take(1)
        self._buckets[network] = bucket
        if len(self._buckets) > MOST_ADDRESSES:
            self._buckets.popitem(last=False)


def network_of(address: str) -> str:
    """What counts as one address: of version 6, which hands them out by the billion, the network
    that one customer has."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.IPv6Network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
