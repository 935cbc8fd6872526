"""llama.cpp processes: one for each base model, shared by all workers that use it.

`shared_model(settings)` returns the one `SharedModel` of this process for those settings. Its
process starts with the first `serving`, loads every adapter registered by then, and ends when the
last user releases the model or is garbage collected, or when this process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import sys
import threading
import weakref
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from podium.core.errors import RequestRefused, Unavailable
from podium.workers.local.batching import SharedByKey

CHILD: Final = Path(__file__).with_name("llama_child.py")
CLOSE_SECONDS: Final = 5.0

SHORT_WAITS: Final = {"GOMP_SPINCOUNT": "1000"}
"""Waiting threads soon sleep.

By default they spin, and another program on the same cores makes each token twenty times slower;
this costs nothing on an idle machine.
"""

SMALL_MODEL_BYTES: Final = 200_000_000
"""Below this size one thread generates by default.

More threads would wait for each other more than they compute, and with another program on the same
cores each token would take four times as long.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """A base model and how it is loaded; -1 leaves the choice to llama.cpp, of threads to
    `_threads`.

    `context` is the number of tokens of all `slots`, the concurrent requests, together. `template`
    is a Jinja chat template or the name of one of llama.cpp's; empty means the model's own.
    """

    path: str
    context: int = 8192
    slots: int = 4
    threads: int = -1
    gpu_layers: int = -1
    template: str = ""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class ModelServer:
    """A running process: its address, key and adapters.

    An adapter's index is its id in requests. The process ends with this object.
    """

    address: str
    key: str = field(repr=False)
    adapters: tuple[str, ...]
    process: subprocess.Popen[str] = field(repr=False)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


class SharedModel:
    """One base model. Safe across event loops and threads."""

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings
        self._adapters: list[str] = []
        self._users = 0
        self._server: ModelServer | None = None
        self._counting = threading.Lock()
        self._loading = threading.Lock()

    def acquire(self, adapter: str = "") -> None:
        """Count one more user and register its adapter."""
        with self._counting:
            self._users += 1
            if adapter and adapter not in self._adapters:
                self._adapters.append(adapter)

    async def release(self) -> None:
        """Count one user less; the last one unloads the model."""
        with self._counting:
            self._users -= 1
            is_last = not self._users
        if is_last:
            await self.close()

    async def serving(self, adapter: str = "") -> ModelServer:
        """Return the process that serves this model and adapter, started if necessary.

        Holding the result keeps that process alive, even if a later adapter required another.
        Cancelling this while the model loads kills the process.
        """
        server = self._ready(adapter)
        if server is not None:
            return server
        child = _LoadingProcess()
        try:
            return await asyncio.to_thread(self._load, adapter, child)
        except asyncio.CancelledError:
            child.abandon()
            raise

    async def close(self) -> None:
        """Unload the model now; the next use loads it again."""
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(_end, server.process)

    def _ready(self, adapter: str) -> ModelServer | None:
        server = self._server
        if server is None or not server.alive:
            return None
        return server if not adapter or adapter in server.adapters else None

    def _load(self, adapter: str, child: _LoadingProcess) -> ModelServer:
        with self._loading:
            if (server := self._ready(adapter)) is None:
                server = self._server = _start(self.settings, tuple(self._adapters), child)
            return server


class _LoadingProcess:
    """A process that loads a model for one caller, who may stop waiting.

    A reading thread cannot be cancelled, but its read ends when the process is killed.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._abandoned = False

    def start(self) -> subprocess.Popen[str]:
        """Start the process, unless the caller has stopped waiting."""
        with self._changing:
            self._check()
            self._process = subprocess.Popen(  # noqa: S603 - a program of our own
                [sys.executable, "-P", str(CHILD)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=SHORT_WAITS | os.environ,
            )
            return self._process

    def keep(self) -> None:
        """Mark the model as loaded: the process is now shared."""
        with self._changing:
            self._check()
            self._process = None

    def abandon(self) -> None:
        with self._changing:
            self._abandoned = True
            if self._process is not None:
                self._process.kill()

    def _check(self) -> None:
        if self._abandoned:
            raise Unavailable("the call that was loading the model was cancelled; call again")


shared_model: Final = SharedByKey(SharedModel)
"""Return the one model of this process with those settings."""


def _start(
    settings: ModelSettings, adapters: tuple[str, ...], child: _LoadingProcess
) -> ModelServer:
    key = secrets.token_urlsafe(24)
    process = child.start()
    try:
        request = asdict(settings) | _threads(settings) | {"adapters": adapters, "key": key}
        answer = _ask(process, request)
        child.keep()
    except BaseException:
        _end(process)
        raise
    server = ModelServer(answer, key, adapters, process)
    weakref.finalize(server, _end, process)
    return server


def _threads(settings: ModelSettings) -> dict[str, int]:
    """Return the threads for generation and for prompts, which use all cores."""
    path = Path(settings.path)
    if settings.threads == -1 and path.is_file() and path.stat().st_size < SMALL_MODEL_BYTES:
        return {"threads": 1, "reading_threads": os.cpu_count() or 1}
    return {"threads": settings.threads, "reading_threads": settings.threads}


def _ask(process: subprocess.Popen[str], settings: dict[str, object]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(settings) + "\n")
        process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise Unavailable(
            f"llama.cpp ended with exit code {process.wait()} while loading {settings['path']}; "
            f"is there enough memory?"
        )
    answer: dict[str, str] = json.loads(line)
    if "error" in answer:
        raise RequestRefused(f"llama.cpp cannot load {settings['path']}: {answer['error']}")
    return answer["address"]


def _end(process: subprocess.Popen[str]) -> None:
    """Close the process's input; kill it if it does not exit."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    try:
        process.wait(CLOSE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
