"""Local GGUF models through llama.cpp, on the CPU or GPU.

llama.cpp's server runs in a process of its own (`podium.workers.local.llama_server`) and speaks
Chat Completions. `podium.workers.local.sources` describes the names of weights. All workers of one
base model share one loaded copy.

These options are settings; all others go into the body of every request (`repeat_penalty`, `top_k`,
…):

    system                              a system prompt, before any other
    adapter, adapter_scale              a LoRA adapter (named as weights are) and its strength
    temperature, top_p, seed            defaults of requests
    context, slots, threads, gpu_layers how the base model is loaded, see `ModelSettings`
    template                            likewise; `chatml` writes the conversation as it is,
                                        where a model's own template may add to it
"""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final

from podium.core.errors import ConfigError, RequestRefused, StoreError
from podium.core.pool import Capability, WorkerProfile
from podium.core.request import Delta, Number, Reply, Request
from podium.workers.chat import ChatReplyParser, ChatVariant, CompatibleWorker
from podium.workers.endpoints import Endpoint
from podium.workers.fields import Document
from podium.workers.hosted import refuse_reserved
from podium.workers.http import Http
from podium.workers.local import weights
from podium.workers.local.llama_server import ModelServer, ModelSettings, SharedModel, shared_model
from podium.workers.translation import with_system

VARIANT: Final = ChatVariant(grammar="grammar", thinking="reasoning_content")

ONE_CALL_A_CONNECTION: Final = {"Connection": "close"}
"""llama.cpp closes a connection after streaming without announcing it; the next call on it would
fail."""

CAPABILITIES: Final[frozenset[Capability]] = frozenset({"sampling", "prefill", "json"})
"""Capabilities of llama.cpp with any model."""

_LOADING: Final[Mapping[str, type]] = {
    "context": int,
    "slots": int,
    "threads": int,
    "gpu_layers": int,
    "template": str,
}
_AT_LEAST_ONE: Final = ("context", "slots")

TEMPLATES: Final = ("chatml",)
"""Templates with a name; any other is given in full."""

SETTINGS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "system": str,
    "adapter": str,
    "adapter_scale": (int, float),
    "temperature": (int, float),
    "top_p": (int, float),
    "seed": int,
    **_LOADING,
}
"""The options that are settings, and their types."""


@dataclass(frozen=True, slots=True)
class _Defaults:
    system: str
    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    seed: int | None

    def complete(self, request: Request) -> Request:
        return replace(
            request,
            messages=with_system(self.system, request.messages),
            max_tokens=_first(request.max_tokens, self.max_tokens),
            temperature=_first(request.temperature, self.temperature),
            top_p=_first(request.top_p, self.top_p),
            seed=_first(request.seed, self.seed),
        )


class LlamaCppWorker:
    """A worker over local weights; the first call downloads and loads them."""

    def __init__(self, profile: WorkerProfile, endpoint: Endpoint, http: Http) -> None:
        if importlib.util.find_spec("xllamacpp") is None:
            raise ConfigError(
                f"worker {profile.name!r} needs the package xllamacpp; pip install xllamacpp"
            )
        options = _check_options(profile, endpoint.options)
        self.profile = profile
        self._http = http
        self._weights = weights.find(profile.model)
        adapter = options.get("adapter", "")
        self._adapter = weights.find(adapter) if adapter else None
        self._scale = float(options.get("adapter_scale", 1.0))
        self._body = {name: value for name, value in options.items() if name not in SETTINGS}
        self._defaults = _Defaults(
            system=options.get("system", ""),
            max_tokens=profile.limits.max_output_tokens,
            **{name: options.get(name) for name in ("temperature", "top_p", "seed")},
        )
        loading = {name: options[name] for name in _LOADING if name in options}
        self._model: SharedModel = shared_model(
            ModelSettings(path=str(self._weights.path), **loading)
        )
        self._model.acquire(self._adapter_path)
        self._closed = False

    async def reply(self, request: Request) -> Reply:
        served = await self._connect()
        return await served.reply(self._defaults.complete(request))

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        served = await self._connect()
        async with aclosing(served.stream(self._defaults.complete(request))) as pieces:
            async for piece in pieces:
                yield piece

    async def load(self) -> None:
        await self._connect()

    async def close(self) -> None:
        """Release the model; it is unloaded when no worker uses it."""
        if not self._closed:
            self._closed = True
            await self._model.release()

    async def _connect(self) -> _ServedWorker:
        weights.check_openmp()
        try:
            for needed in filter(None, (self._weights, self._adapter)):
                await weights.locate(needed.name)
        except (ConfigError, StoreError) as error:
            raise RequestRefused(f"worker {self.profile.name!r}: {error}") from error
        server = await self._model.serving(self._adapter_path)
        return _ServedWorker(self.profile, server, self._body | self._lora(server), self._http)

    def _lora(self, server: ModelServer) -> dict[str, Any]:
        """Return the scale of each loaded adapter, 0 for all but this worker's own.

        Also without an adapter: if a request names none, llama.cpp does not notice that the adapter
        changes and reuses another one's prompt cache.
        """
        if not server.adapters:
            return {}
        scales = [self._scale if path == self._adapter_path else 0.0 for path in server.adapters]
        return {"lora": [{"id": position, "scale": scale} for position, scale in enumerate(scales)]}

    @property
    def _adapter_path(self) -> str:
        return str(self._adapter.path) if self._adapter is not None else ""


class _ServedWorker(CompatibleWorker):
    """Chat Completions with a loaded model; it keeps the server alive."""

    def __init__(
        self, profile: WorkerProfile, server: ModelServer, body: Mapping[str, Any], http: Http
    ) -> None:
        able = replace(profile, capabilities=profile.capabilities | CAPABILITIES)
        endpoint = Endpoint(f"{server.address}/v1", server.key, ONE_CALL_A_CONNECTION, body)
        super().__init__(able, endpoint, http)
        self._server = server

    @property
    def variant(self) -> ChatVariant:
        return VARIANT

    def parse_reply(self, document: Document, request: Request) -> Reply:
        """Parse a whole completion, which, unlike a streamed one, repeats the prefill."""
        whole = replace(VARIANT, echoes_prefill=True)
        return ChatReplyParser(request, self.profile, whole, self.label).parse(document)


def _check_options(profile: WorkerProfile, options: Mapping[str, Any]) -> Mapping[str, Any]:
    refuse_reserved(profile, options, _ServedWorker.reserved_fields)
    for name in SETTINGS.keys() & options.keys():
        value, kind = options[name], SETTINGS[name]
        fits = isinstance(value, kind) and not isinstance(value, bool)
        if not fits or (name in _AT_LEAST_ONE and value < 1):
            wanted = "text" if kind is str else "a whole number" if kind is int else "a number"
            if name in _AT_LEAST_ONE:
                wanted += " from 1 on"
            raise ConfigError(
                f"worker {profile.name!r} has {name} = {value!r} in its options; give {wanted}"
            )
    template = options.get("template", "")
    if template and template not in TEMPLATES and "{%" not in template:
        raise ConfigError(
            f"worker {profile.name!r} has template = {template!r} in its options; give "
            f"{' or '.join(TEMPLATES)}, or a Jinja template"
        )
    return options


def _first(one: Number | None, other: Number | None) -> Number | None:
    return other if one is None else one
