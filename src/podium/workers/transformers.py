"""Local models through transformers: weights in this process, concurrent requests in batches.

For a GPU and many workflows at once, such as training and evaluation; use llama.cpp for single
questions on a CPU. `profile.model` is a directory, a GGUF file or a hub name. All workers of one
base model share one loaded copy; each may have an adapter. A batch completes as a whole, so a
streamed reply comes in one piece.

Every option of the endpoint is a setting:

    system             a system prompt, before any other
    adapter            the directory of a LoRA adapter in peft's format
    temperature, top_p defaults of requests
    dtype, device      how the base model is loaded; by default `auto` and the GPU if any
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from podium.core.errors import (
    ConfigError,
    PromptTooLong,
    RequestRefused,
    StoreError,
    WorkerCrashed,
    install_command,
)
from podium.core.pool import WorkerProfile
from podium.core.request import Message, Number, Reply, Request, Text, Thinking, Usage
from podium.core.worker import Worker
from podium.workers.endpoints import Endpoint
from podium.workers.local.batching import ModelSpec, shared_completion_model
from podium.workers.translation import unsupported_part, with_system

if TYPE_CHECKING:
    from podium.workers.http import Http
    from podium.workers.local.decoding import Sampling
    from podium.workers.local.pretrained import Pretrained

SETTINGS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "system": str,
    "adapter": str,
    "temperature": (int, float),
    "top_p": (int, float),
    "dtype": str,
    "device": str,
}
_RANGES: Final = {
    "temperature": ((0.0, math.inf), "0 or more"),
    "top_p": ((math.ulp(0.0), 1.0), "more than 0, and at most 1"),
}

DEFAULT_MAX_TOKENS: Final = 512

PACKAGES: Final = ("torch", "transformers", "gguf", "safetensors")
"""Packages of the extra `train` that run the models."""


class TransformersWorker(Worker):
    """A worker over a model in this process; the first call downloads and loads it."""

    def __init__(self, profile: WorkerProfile, endpoint: Endpoint, http: Http) -> None:
        _check_packages(profile)
        options = _check_options(profile, endpoint.options)
        self.profile = profile
        self._system: str = options.get("system", "")
        self._temperature = float(options.get("temperature", 0.0))
        self._top_p = float(options.get("top_p", 1.0))
        self._adapter = _directory(options["adapter"]) if options.get("adapter") else None
        self._model = shared_completion_model(
            ModelSpec(profile.model, options.get("dtype", "auto"), options.get("device", ""))
        )
        self._model.acquire()
        self._closed = False

    async def reply(self, request: Request) -> Reply:
        _refuse_unsupported(self.profile, request)
        messages = with_system(self._system, request.messages)
        said = [_to_chat(message, self.profile) for message in messages]
        with self._boundary():
            loaded = await self._model.ready()
            prompt = loaded.encode(said, request.prefill)
            completion = await self._model.complete(
                prompt, self._sampling(request, loaded, len(prompt)), self._adapter
            )
        return Reply(
            request.prefill + loaded.decode(completion.tokens),
            usage=Usage(len(prompt), len(completion.tokens), 0, 0, 0),
            finish="stop" if completion.ended else "length",
            model=self.profile.model,
        )

    async def load(self) -> None:
        with self._boundary():
            await self._model.ready()

    async def close(self) -> None:
        """Release the model; it is unloaded when no worker uses it."""
        if not self._closed:
            self._closed = True
            await self._model.release()

    @contextmanager
    def _boundary(self) -> Iterator[None]:
        try:
            yield
        except (ConfigError, StoreError) as error:
            raise RequestRefused(f"worker {self.profile.name!r}: {error}") from error
        except (RuntimeError, OSError) as error:
            raise WorkerCrashed(f"worker {self.profile.name!r}: {error}") from error

    def _sampling(self, request: Request, loaded: Pretrained, taken: int) -> Sampling:
        """Return the sampling parameters, within the tokens that the prompt leaves."""
        from podium.workers.local.decoding import Sampling

        usual = self.profile.limits.max_output_tokens or DEFAULT_MAX_TOKENS
        most = _given(request.max_tokens, usual)
        if loaded.context is not None:
            if taken >= loaded.context:
                raise PromptTooLong(
                    f"{self.profile.name}: the prompt has {taken} tokens, the model's context "
                    f"{loaded.context}; shorten it, or ask another worker"
                )
            most = min(most, loaded.context - taken)
        try:
            return Sampling(
                max_tokens=most,
                temperature=_given(request.temperature, self._temperature),
                top_p=_given(request.top_p, self._top_p),
                seed=request.seed,
            )
        except ValueError as error:
            raise ConfigError(str(error)) from error


def _check_packages(profile: WorkerProfile) -> None:
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise ConfigError(
                f"worker {profile.name!r} needs the package {package}; {install_command('train')}"
            )


def _check_options(profile: WorkerProfile, options: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, value in options.items():
        kind = SETTINGS.get(name)
        if kind is None:
            close = get_close_matches(name, SETTINGS, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(SETTINGS)}"
            raise ConfigError(
                f"worker {profile.name!r} has the option {name!r}, which transformers does not "
                f"know; {hint}"
            )
        wanted = "text" if kind is str else "a number"
        fits = isinstance(value, kind) and not isinstance(value, bool)
        if fits and name in _RANGES:
            (lowest, highest), wanted = _RANGES[name]
            fits = lowest <= value <= highest
        if not fits:
            raise ConfigError(
                f"worker {profile.name!r} has {name} = {value!r} in its options; give {wanted}"
            )
    return options


def _directory(adapter: str) -> str:
    return str(Path(adapter.removeprefix("file:")).expanduser())


def _refuse_unsupported(profile: WorkerProfile, request: Request) -> None:
    """Refuse features that would be ignored silently."""
    asked = {
        "a JSON schema": request.schema is not None,
        "a grammar": bool(request.grammar),
        "tools": bool(request.tools),
        "stop sequences": bool(request.stop),
    }
    for what, is_asked in asked.items():
        if is_asked:
            raise RequestRefused(
                f"worker {profile.name!r} cannot follow {what}; use llamacpp or a hosted model"
            )


def _to_chat(message: Message, profile: WorkerProfile) -> dict[str, str]:
    for part in message.parts:
        if not isinstance(part, Text | Thinking):
            raise unsupported_part(part, message, profile)
    return {"role": message.role, "content": message.text}


def _given(one: Number | None, other: Number) -> Number:
    return other if one is None else one
