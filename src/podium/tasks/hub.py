"""Whether the hub can be reached, and asking its clients for what they have kept where it cannot.

Left alone, these try for half a minute and tell of each attempt. What is asked of the hub is
`sources`' business.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

PROBE_SECONDS: Final = 5.0
"""How long the hub has to answer at all."""

_CLIENTS: Final = ("huggingface_hub.constants", "datasets.config")
_SETTING: Final = "HF_HUB_OFFLINE"


def answers() -> bool:
    """Whether the hub answers, by the address and the proxies that its clients use."""
    constants = importlib.import_module("huggingface_hub.constants")
    session = importlib.import_module("huggingface_hub.utils").get_session()
    try:
        session.head(constants.ENDPOINT, timeout=PROBE_SECONDS)
    except Exception:  # noqa: BLE001 - the client's own kinds change with its version
        return False
    return True


@contextmanager
def without() -> Iterator[None]:
    """Meanwhile the hub's clients take what they have kept and ask nobody."""
    clients = [importlib.import_module(name) for name in _CLIENTS]
    before = [getattr(client, _SETTING) for client in clients]
    for client in clients:
        setattr(client, _SETTING, True)
    try:
        yield
    finally:
        for client, setting in zip(clients, before, strict=True):
            setattr(client, _SETTING, setting)
