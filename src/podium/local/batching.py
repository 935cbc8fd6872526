"""Concurrent requests to one local model, gathered into batches.

Whoever asks waits for a completion of their own; a thread beside them takes all that have asked
by now, and completes them together. While it works, the next ones gather. So a thousand
workflows run at once over one model, and none of them knows of the others.

Needs torch, through `podium.local.decoding`.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from podium.local import pretrained
from podium.local.decoding import Completion, Decoder, Sampling
from podium.local.lora import EVERY_LINEAR_LAYER, AdapterStack

QUIET_SECONDS: Final = 0.004
"""A batch is closed when nobody has asked for this long: requests that come of one event, such
as the first steps of a thousand workflows, come within microseconds of each other."""

MOST_ROWS: Final = 2048
MOST_TOKENS: Final = 600_000
"""Rows times their greatest length: what the keys and values of a batch may take."""


@dataclass(frozen=True, slots=True)
class _Asked:
    prompt: list[int]
    sampling: Sampling
    adapter: str | None
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Completion]

    @property
    def size(self) -> int:
        return len(self.prompt) + self.sampling.max_tokens


class BatchingModel:
    """One model in memory, with any number of adapters, for everybody in this process."""

    def __init__(self, name: str, dtype: str, device: str) -> None:
        self._name = name
        self._dtype = dtype
        self._device = device
        self._adapters: dict[str, Path] = {}
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._loading = threading.Lock()
        self._pretrained: pretrained.Pretrained | None = None
        self._decoder: Decoder | None = None
        self._stack: AdapterStack | None = None
        self._thread: threading.Thread | None = None

    def hold(self, adapter: str, directory: Path) -> None:
        """Have that adapter ready when it is asked for."""
        self._adapters[adapter] = directory

    def load(self) -> pretrained.Pretrained:
        """The model and its tokenizer; loaded when this is called first, which takes a while."""
        with self._loading:
            if self._pretrained is None:
                self._pretrained = pretrained.load(
                    self._name, dtype=pretrained.data_type(self._dtype), device=self._device
                )
                self._start(self._pretrained)
            return self._pretrained

    async def complete(
        self, prompt: list[int], sampling: Sampling, adapter: str | None = None
    ) -> Completion:
        """Complete the prompt, together with whoever else asks at this time."""
        if self._pretrained is None:
            await asyncio.to_thread(self.load)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Completion] = loop.create_future()
        self._asked.put(_Asked(prompt, sampling, adapter, loop, future))
        return await future

    def close(self) -> None:
        """End the thread, once it has done what was asked."""
        if self._thread is not None:
            self._asked.put(None)
            self._thread.join()
            self._thread = None

    def _start(self, loaded: pretrained.Pretrained) -> None:
        self._stack = AdapterStack(loaded.model, targets=EVERY_LINEAR_LAYER)
        self._decoder = Decoder(
            loaded.model,
            end_tokens=loaded.end_tokens,
            padding=loaded.tokenizer.pad_token_id,
            adapters=self._stack,
        )
        self._thread = threading.Thread(target=self._serve, name="podium-batches", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while (first := self._asked.get()) is not None:
            gathered, is_last = self._gather(first)
            for batch in in_batches(gathered):
                try:
                    self._answer(batch)
                except Exception as error:  # noqa: BLE001 - every fault goes to those who wait
                    _tell(batch, error)
            if is_last:
                return

    def _gather(self, first: _Asked) -> tuple[list[_Asked], bool]:
        gathered = [first]
        while len(gathered) < MOST_ROWS:
            try:
                another = self._asked.get(timeout=QUIET_SECONDS)
            except queue.Empty:
                break
            if another is None:
                return gathered, True
            gathered.append(another)
        return gathered, False

    def _answer(self, batch: Sequence[_Asked]) -> None:
        assert self._decoder is not None
        assert self._stack is not None
        for adapter, directory in self._adapters.items():
            if adapter not in self._stack.names:
                self._stack.add(adapter, directory)
        completions = self._decoder.complete(
            [asked.prompt for asked in batch],
            [asked.sampling for asked in batch],
            choices=[self._stack.index(asked.adapter) for asked in batch],
        )
        _tell(batch, completions)


def in_batches(asked: Sequence[_Asked]) -> Iterator[list[_Asked]]:
    """Those of about one length together, no more at a time than memory holds."""
    batch: list[_Asked] = []
    for one in sorted(asked, key=lambda one: one.size):
        if batch and (len(batch) + 1) * one.size > MOST_TOKENS:
            yield batch
            batch = []
        batch.append(one)
    if batch:
        yield batch


def _tell(batch: Sequence[_Asked], outcome: Sequence[Completion] | Exception) -> None:
    """Hand the outcome to those who wait, all of one event loop at a time."""
    loops = {asked.loop for asked in batch}
    for loop in loops:
        waiting = [
            (asked.future, outcome if isinstance(outcome, Exception) else outcome[place])
            for place, asked in enumerate(batch)
            if asked.loop is loop
        ]
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, waiting)


def _settle(waiting: Sequence[tuple[asyncio.Future[Completion], Completion | Exception]]) -> None:
    for future, outcome in waiting:
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


_SHARED: Final[weakref.WeakValueDictionary[tuple[str, str, str], BatchingModel]] = (
    weakref.WeakValueDictionary()
)


def shared_batching_model(name: str, dtype: str = "auto", device: str = "") -> BatchingModel:
    """The one model of that name in this process."""
    key = (name, dtype, device)
    model = _SHARED.get(key)
    if model is None:
        model = _SHARED[key] = BatchingModel(name, dtype, device)
    return model
