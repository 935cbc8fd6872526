"""The heap of a process that measures: what was there before is no business of the collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def settled_heap() -> Iterator[None]:
    """Spare the collector what is there by now, as a server does: what is measured pays for its own
    garbage only. In a process that spares its collector by itself it stays so."""
    is_spared = gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not is_spared:
            gc.unfreeze()
