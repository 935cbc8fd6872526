"""Endpoints, the known vendors, and `connect`.

`connect` is the only place that maps a provider's name to code, which it imports on demand.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from podium.core.errors import ConfigError
from podium.core.pool import WorkerProfile
from podium.core.worker import Worker

if TYPE_CHECKING:
    from podium.workers.http import Http


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address, key, headers and options of a worker.

    `options` are merged into the body of every request, except for a vendor's own settings. They
    cannot override what Podium decides: messages, output limits, number of replies.
    """

    base_url: str = field(default="", repr=False)
    api_key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KnownEndpoint:
    """A known vendor: its address, its API and its environment variables.

    The first of `key_variables` that is set holds the key; `address_variable` may hold the address.
    """

    provider: str
    base_url: str
    key_variables: tuple[str, ...] = ()
    protocol: str = "openai-compatible"
    address_variable: str = ""

    def find_in(self, environment: Mapping[str, str]) -> Endpoint | None:
        """Return the endpoint that the environment configures, or None."""
        address = environment.get(self.address_variable, "").strip()
        if address:
            return Endpoint(base_url=_full_address(address, self.base_url))
        for variable in self.key_variables:
            if key := environment.get(variable, "").strip():
                return Endpoint(base_url=self.base_url, api_key=key)
        return None


KNOWN_ENDPOINTS: Final[Mapping[str, KnownEndpoint]] = MappingProxyType(
    {
        known.provider: known
        for known in (
            KnownEndpoint("openai", "https://api.openai.com/v1", ("OPENAI_API_KEY",), "openai"),
            KnownEndpoint(
                "anthropic", "https://api.anthropic.com", ("ANTHROPIC_API_KEY",), "anthropic"
            ),
            KnownEndpoint(
                "google",
                "https://generativelanguage.googleapis.com/v1beta",
                ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
                "google",
            ),
            KnownEndpoint("openrouter", "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",)),
            KnownEndpoint("deepseek", "https://api.deepseek.com/v1", ("DEEPSEEK_API_KEY",)),
            KnownEndpoint("together", "https://api.together.xyz/v1", ("TOGETHER_API_KEY",)),
            KnownEndpoint("groq", "https://api.groq.com/openai/v1", ("GROQ_API_KEY",)),
            KnownEndpoint("mistral", "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",)),
            KnownEndpoint("xai", "https://api.x.ai/v1", ("XAI_API_KEY",)),
            KnownEndpoint(
                "fireworks", "https://api.fireworks.ai/inference/v1", ("FIREWORKS_API_KEY",)
            ),
            KnownEndpoint("ollama", "http://127.0.0.1:11434/v1", address_variable="OLLAMA_HOST"),
            KnownEndpoint("vllm", "http://127.0.0.1:8000/v1"),
        )
    }
)
"""Known vendors by provider name."""

_FACTORIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "openai": "podium.workers.openai:openai_worker",
        "anthropic": "podium.workers.anthropic:AnthropicWorker",
        "google": "podium.workers.google:GoogleWorker",
        "openai-compatible": "podium.workers.chat:CompatibleWorker",
        "llamacpp": "podium.workers.llamacpp:LlamaCppWorker",
        "transformers": "podium.workers.transformers:TransformersWorker",
        "scripted": "podium.workers.scripted:scripted_worker",
    }
)
"""Worker factories by API name."""


def connect(profile: WorkerProfile, endpoint: Endpoint, http: Http) -> Worker:
    """Create the worker of a profile.

    A known vendor's address and key are filled in. Nothing is sent: a wrong key or address shows
    with the first call. Raises `ConfigError` for an unknown provider or a missing key.
    """
    known = KNOWN_ENDPOINTS.get(profile.provider)
    if known is not None:
        endpoint = _fill_in(profile, endpoint, known)
    protocol = known.protocol if known is not None else profile.provider
    module_name, _, factory_name = _factory_of(profile, protocol).partition(":")
    module = importlib.import_module(module_name)
    worker: Worker = getattr(module, factory_name)(profile, endpoint, http)
    return worker


def _fill_in(profile: WorkerProfile, endpoint: Endpoint, known: KnownEndpoint) -> Endpoint:
    if endpoint.base_url:
        return endpoint
    if known.key_variables and not endpoint.api_key:
        raise ConfigError(
            f"worker {profile.name!r} needs a key for {known.provider}; "
            f"set {known.key_variables[0]} in the environment, or give its endpoint an api_key"
        )
    return replace(endpoint, base_url=known.base_url)


def _factory_of(profile: WorkerProfile, protocol: str) -> str:
    if protocol in _FACTORIES:
        return _FACTORIES[protocol]
    valid = sorted({*_FACTORIES, *KNOWN_ENDPOINTS})
    nearest = difflib.get_close_matches(protocol, valid, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"use one of {', '.join(valid)}"
    raise ConfigError(f"worker {profile.name!r} has the unknown provider {protocol!r}; {hint}")


def _full_address(address: str, default: str) -> str:
    """Complete Ollama's variable, which holds a host, a port or both."""
    scheme, has_scheme, rest = address.rpartition("://")
    authority, _, path = rest.partition("/")
    credentials, at, host = authority.rpartition("@")
    if host.count(":") > 1 and not host.startswith("["):
        host = f"[{host}]"
    elif host.startswith(":"):
        host = f"127.0.0.1{host}"
    host = host.replace("0.0.0.0", "127.0.0.1")  # noqa: S104 -- an address to reach, not to bind
    host = host.replace("[::]", "[::1]")
    if ":" not in host.rpartition("]")[2] and not has_scheme:
        host = f"{host}:{default.rpartition(':')[2].partition('/')[0]}"
    path = path.strip("/") or default.rpartition("/")[2]
    return f"{scheme if has_scheme else 'http'}://{credentials}{at}{host}/{path}"
