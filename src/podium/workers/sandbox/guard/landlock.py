"""Which files a program may open: rules that the kernel holds it to, as any user may set them.

Beside a root of its own this is a second wall; where mounts cannot be had it is the only one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from podium.workers.sandbox.guard import kernel

_EXECUTE: Final = 1 << 0
_WRITE_FILE: Final = 1 << 1
_READ_FILE: Final = 1 << 2
_READ_DIRECTORY: Final = 1 << 3
_TRUNCATE: Final = 1 << 14

_FILE_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15}
"""How many rights over files each version knows; from the fifth on there are sixteen."""
_RIGHTS_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_CONNECT_AND_BIND: Final = 0b11
_SIGNALS_AND_ABSTRACT_SOCKETS: Final = 0b11

_KNOWS_NETWORK: Final = 4
KNOWS_SIGNALS: Final = 6


def enclose(readable: Iterable[str], writable: Iterable[str], *, own_network: bool) -> None:
    """Hold this process to reading there and writing there; what is not there is passed over.
    Without a network of its own, it may reach none; and it may signal only what it starts."""
    version = kernel.landlock_version()
    every_right = (1 << _FILE_RIGHTS.get(version, 16)) - 1
    network = _CONNECT_AND_BIND if version >= _KNOWS_NETWORK and not own_network else 0
    scopes = _SIGNALS_AND_ABSTRACT_SOCKETS if version >= KNOWS_SIGNALS else 0
    size = 8 if version < _KNOWS_NETWORK else 16 if version < KNOWS_SIGNALS else 24
    ruleset = kernel.landlock_ruleset(every_right, network, scopes, size)
    for path in readable:
        _allow(ruleset, path, _EXECUTE | _READ_FILE | _READ_DIRECTORY)
    for path in writable:
        _allow(ruleset, path, every_right)
    kernel.landlock_restrict(ruleset)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    with suppress(FileNotFoundError, PermissionError):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        is_directory = os.path.isdir(path)
        kernel.landlock_allow(ruleset, rights if is_directory else rights & _RIGHTS_OF_FILES, place)
        os.close(place)
