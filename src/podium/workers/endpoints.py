"""Endpoints, the known vendors, and `connect`.

`connect` is the only place that maps a provider's name to code, which it imports on demand.
"""

from __future__ import annotations

import difflib
import importlib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from podium.core.errors import ConfigError
from podium.core.pool import WorkerProfile
from podium.core.worker import Worker

if TYPE_CHECKING:
    from podium.workers.credentials import Authorizer
    from podium.workers.http import Http


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address, key, headers and options of a worker.

    `options` are merged into the body of every request, except for a vendor's own settings. They
    cannot override what Podium decides: messages, output limits, number of replies. `key_header`
    carries the key if not the vendor's usual header; in `Authorization` it is a bearer token.
    `authorizer` signs each call where there is no key.
    """

    base_url: str = field(default="", repr=False)
    api_key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    key_header: str = ""
    authorizer: Authorizer | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class KnownEndpoint:
    """A known vendor: its address, its API and its environment variables.

    The first of `key_variables` that is set holds the key; `token_variables` hold bearer tokens.
    `address_variable` may hold another address, to which `address_path` is added, as the vendor's
    SDK does. Words in capitals in an address are `placeholders`: each is replaced by its first
    variable that is set, or else by `defaults`. At the vendor's own `hosts` every account has an
    address of its own: there the usual key is sent, and without one the `authorizer` of
    `credentials` signs calls. `endpoints.toml` has them.
    """

    provider: str
    base_url: str
    key_variables: tuple[str, ...] = ()
    protocol: str = "openai-compatible"
    address_variable: str = ""
    address_path: str = ""
    token_variables: tuple[str, ...] = ()
    placeholders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    key_header: str = ""
    authorizer: str = ""

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that configure this vendor, and no other program."""
        return (*filter(None, [self.address_variable]), *self.key_variables, *self.token_variables)

    def find_in(self, environment: Mapping[str, str]) -> Endpoint | None:
        """Return the endpoint that the environment configures, or None."""
        if not _first(environment, self.variables):
            return None
        address = self.address_in(environment)
        found = self.endpoint_at(address, environment)
        is_usable = found.api_key or self.authorizer or not self.key_variables
        return found if address and is_usable else None

    def address_in(self, environment: Mapping[str, str]) -> str:
        """Return the address; empty if the environment lacks a part of it."""
        if address := environment.get(self.address_variable, "").strip():
            if not self.key_variables and not self.authorizer:
                return _full_address(address, self.base_url)
            address = address.rstrip("/").removesuffix(self.address_path) + self.address_path
        else:
            address = self.base_url
        for placeholder, variables in self.placeholders.items():
            if placeholder in address:
                value = _first(environment, variables) or self.defaults.get(placeholder, "")
                if not value:
                    return ""
                address = address.replace(placeholder, value)
        return address

    def endpoint_at(self, address: str, environment: Mapping[str, str]) -> Endpoint:
        key = _first(environment, self.key_variables)
        if not key and (token := _first(environment, self.token_variables)):
            return Endpoint(address, token, key_header="Authorization")
        return Endpoint(address, key)

    def owns(self, address: str) -> bool:
        parts = urlsplit(address)
        host = parts.hostname or ""
        return parts.scheme == "https" and host.endswith(self.hosts or ("\n",))


def _first(environment: Mapping[str, str], variables: Iterable[str]) -> str:
    values = (environment.get(variable, "").strip() for variable in variables)
    return next(filter(None, values), "")


def _read_known() -> dict[str, KnownEndpoint]:
    text = resources.files("podium.workers").joinpath("endpoints.toml").read_text("utf-8")
    known = (KnownEndpoint(**_with_tuples(table)) for table in tomllib.loads(text)["endpoint"])
    return {one.provider: one for one in known}


def _with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_tuples(inner) for key, inner in value.items()}
    return tuple(value) if isinstance(value, list) else value


KNOWN_ENDPOINTS: Final[Mapping[str, KnownEndpoint]] = MappingProxyType(_read_known())
"""Known vendors by provider name."""

_FACTORIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "openai": "podium.workers.openai:openai_worker",
        "anthropic": "podium.workers.anthropic:AnthropicWorker",
        "google": "podium.workers.google:GoogleWorker",
        "bedrock": "podium.workers.bedrock:BedrockWorker",
        "vertex": "podium.workers.vertex:vertex_worker",
        "openai-compatible": "podium.workers.chat:CompatibleWorker",
        "llamacpp": "podium.workers.llamacpp:LlamaCppWorker",
        "transformers": "podium.workers.transformers:TransformersWorker",
        "python": "podium.workers.python:PythonWorker",
        "scripted": "podium.workers.scripted:scripted_worker",
    }
)


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
    key_header = endpoint.key_header or known.key_header
    endpoint = replace(endpoint, key_header=key_header)
    if not endpoint.base_url:
        if known.key_variables and not endpoint.api_key and not known.authorizer:
            raise ConfigError(
                f"worker {profile.name!r} needs a key for {known.provider}; "
                f"set {known.key_variables[0]} in the environment, or give its endpoint an api_key"
            )
        if known.placeholders:
            raise missing_address(profile, known)
        endpoint = replace(endpoint, base_url=known.base_url)
    if endpoint.api_key or endpoint.authorizer or not known.owns(endpoint.base_url):
        return endpoint
    credentials = importlib.import_module("podium.workers.credentials")
    return replace(endpoint, authorizer=getattr(credentials, known.authorizer)(endpoint.base_url))


def missing_address(profile: WorkerProfile, known: KnownEndpoint) -> ConfigError:
    """Return the error for a vendor whose address depends on the account, where it is not known."""
    placeholders = [
        variables[0]
        for placeholder, variables in known.placeholders.items()
        if variables and placeholder not in known.defaults
    ]
    variables = " and ".join(placeholders) or known.address_variable
    return ConfigError(
        f"worker {profile.name!r} needs the address of {known.provider}; set {variables} in the "
        f'environment, or base_url = "{known.base_url}"'
    )


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
