"""The event loop that the upstream and the clients run on: the server's own, where there is one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_on_fast_loop(work: Coroutine[Any, Any, Result]) -> Result:
    """Run it to its end. Windows has only the standard loop."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)
