"""A Ray cluster on this machine, for tests of what is spread over one.

Nothing here waits until a machine was silent for so long: on a busy one, those that are alive
would be taken for dead. What dies in a test ends by a signal, which the others hear of at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

SETTINGS: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_worker_register_timeout_seconds": "120",
    "PYTHONPATH": str(Path(__file__).parents[1]),
}
"""Of Ray: how long its own processes may take to start, where much else is going on; and where
they find what tests send them."""


@contextmanager
def ray_cluster(monkeypatch: pytest.MonkeyPatch, *, cpus: int) -> Iterator[Any]:
    """A cluster of one node with so many CPUs; more can be added."""
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    pytest.importorskip("ray", reason="the extra ray is not installed: NOTHING of Ray is tested")
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": cpus, "include_dashboard": False}
    )
    try:
        yield cluster
    finally:
        cluster.shutdown()


@dataclass(frozen=True, slots=True)
class DeadlyGrader:
    """Ends the process that it grades in, with no word of goodbye, once: the second time it says
    that the answer is right. `mark` is the file by which it knows."""

    mark: str

    async def __call__(self, answer: str) -> bool:
        if self._is_first():
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    def _is_first(self) -> bool:
        try:
            Path(self.mark).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


class Gone(Exception):
    """What Ray raises when a seat's process is no more."""


class LostObject(Exception):
    """What Ray raises when a seat is no more that had just ended its work."""


class Wrapped(Exception):
    """What Ray raises when a seat raised something."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


EXCEPTIONS: Final = SimpleNamespace(
    RayActorError=Gone, ObjectLostError=LostObject, RayTaskError=Wrapped
)


class Remote:
    """A method as Ray has it of an actor, in this process."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    async def remote(self, *arguments: Any) -> Any:
        """What the method comes to."""
        done = self._call(*arguments)
        return await done if isinstance(done, Awaitable) else done


class SeatHere:
    """A worker process stand-in that runs scripted results."""

    def __init__(self, perform: Callable[..., Any]) -> None:
        self.perform = Remote(perform)
