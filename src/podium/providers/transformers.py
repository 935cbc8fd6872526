"""Local models through transformers: weights in this process, requests gathered into batches.

For a graphics card and many workflows at once, such as training and measuring; for one question
at a time on a processor, llama.cpp is several times faster. `profile.model` is a directory, a
GGUF file or a name on the hub. All workers of one base model share one loaded copy, and each may
have an adapter over it.

Every option of the endpoint is a setting:

    system             a system prompt of the worker's own, before any other
    adapter            the directory of a LoRA adapter, as peft writes it
    temperature, top_p sampling where a request does not say
    dtype, device      how the base model is loaded; `auto` and the graphics card if there is one
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from podium.errors import ConfigError, RequestRefused, WorkerCrashed
from podium.pool import WorkerProfile
from podium.providers.base import Endpoint
from podium.providers.parts import with_system
from podium.request import Message, Reply, Request
from podium.usage import Usage
from podium.worker import Worker

if TYPE_CHECKING:
    from podium.local.batching import BatchingModel
    from podium.providers.http import Http

SETTINGS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "system": str,
    "adapter": str,
    "temperature": (int, float),
    "top_p": (int, float),
    "dtype": str,
    "device": str,
}
"""The options, and what each must be."""

DEFAULT_MAX_TOKENS: Final = 512


class TransformersWorker(Worker):
    """A worker over a model in this process. The model is loaded with the first call."""

    def __init__(self, profile: WorkerProfile, endpoint: Endpoint, http: Http) -> None:
        self.profile = profile
        options = _checked(profile, endpoint.options)
        self._system: str = options.get("system", "")
        self._temperature = float(options.get("temperature", 0.0))
        self._top_p = float(options.get("top_p", 1.0))
        self._max_tokens = profile.limits.max_output_tokens or DEFAULT_MAX_TOKENS
        self._adapter: str | None = options.get("adapter")
        self._model = _shared(profile, options)
        if self._adapter is not None:
            self._model.hold(self._adapter, Path(self._adapter).expanduser())

    async def reply(self, request: Request) -> Reply:
        """Answer the request, in one batch with those that come at the same time."""
        from podium.local.decoding import Sampling

        _refuse_what_is_not_possible(self.profile, request)
        try:
            loaded = await asyncio.to_thread(self._model.load)
            prompt = loaded.encode(
                [_plain(message) for message in with_system(self._system, request.messages)],
                request.prefill,
            )
            completion = await self._model.complete(
                prompt,
                Sampling(
                    max_tokens=request.max_tokens or self._max_tokens,
                    temperature=_given(request.temperature, self._temperature),
                    top_p=_given(request.top_p, self._top_p),
                ),
                self._adapter,
            )
        except ConfigError as error:
            raise RequestRefused(f"worker {self.profile.name!r}: {error}") from error
        except (RuntimeError, OSError) as error:
            raise WorkerCrashed(f"worker {self.profile.name!r}: {error}") from error
        return Reply(
            request.prefill + loaded.decode(completion.tokens),
            usage=Usage(len(prompt), len(completion.tokens), 0, 0, 0),
            finish="stop" if completion.ended else "length",
            model=self.profile.model,
        )


def _shared(profile: WorkerProfile, options: Mapping[str, Any]) -> BatchingModel:
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"worker {profile.name!r} needs the package {missing[0]}; "
            f"pip install 'podium-conductor[train]'"
        )
    from podium.local.batching import shared_batching_model

    return shared_batching_model(
        profile.model, options.get("dtype", "auto"), options.get("device", "")
    )


def _checked(profile: WorkerProfile, options: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, value in options.items():
        kind = SETTINGS.get(name)
        if kind is None:
            raise ConfigError(
                f"worker {profile.name!r} has the unknown option {name!r}; "
                f"transformers takes {', '.join(SETTINGS)}"
            )
        if not isinstance(value, kind) or isinstance(value, bool):
            wanted = "text" if kind is str else "a number"
            raise ConfigError(f"worker {profile.name!r} has {name} = {value!r}; give {wanted}")
    return options


def _refuse_what_is_not_possible(profile: WorkerProfile, request: Request) -> None:
    """Nothing that was asked for is left out silently."""
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


def _plain(message: Message) -> dict[str, str]:
    return {"role": message.role, "content": message.text}


def _given(one: float | None, other: float) -> float:
    return other if one is None else one
