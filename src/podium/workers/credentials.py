"""Credentials of cloud accounts, which sign each call, by the vendors' own libraries.

    azure     azure-identity   extra `azure`     a token of Microsoft Entra ID
    bedrock   botocore         extra `bedrock`   a signature (SigV4) with the keys of the account
    vertex    google-auth      extra `vertex`    a token of Application Default Credentials

The libraries find the credentials: in variables, in files, or from the machine that they run on.
They are imported with the first call and run in a thread, because they may wait for the network.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from podium.core.errors import AuthenticationFailed, ConfigError, install_command
from podium.workers import fields

if TYPE_CHECKING:
    from podium.workers.http import HttpCall

RENEW_SECONDS: Final = 300.0
"""A token is renewed so long before it expires."""

ENTRA_SCOPE: Final = "https://cognitiveservices.azure.com/.default"
GOOGLE_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
AWS_SERVICE: Final = "bedrock"


class Authorizer(Protocol):
    """Signs calls."""

    async def headers(self, call: HttpCall) -> Mapping[str, str]:
        """Return the headers that authorize the call; raise `AuthenticationFailed`."""


class Token(NamedTuple):
    """A bearer token, and when it expires, in seconds since 1970."""

    value: str
    expires: float


class BearerToken:
    """An authorizer that sends a token and renews it in time, for all calls at once."""

    def __init__(
        self, fetch: Callable[[], Token], vendor: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._fetch = fetch
        self._vendor = vendor
        self._clock = clock
        self._token = Token("", 0.0)
        self._renewing: asyncio.Task[Token] | None = None

    async def headers(self, call: HttpCall) -> Mapping[str, str]:
        left = self._token.expires - self._clock()
        if left < RENEW_SECONDS:
            try:
                await self._renew()
            except AuthenticationFailed:
                if left <= 0:
                    raise
        return {"Authorization": f"Bearer {self._token.value}"}

    async def _renew(self) -> None:
        task = self._renewing
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            task = self._renewing = asyncio.create_task(_in_thread(self._fetch, self._vendor))
        self._token = await asyncio.shield(task)


async def _in_thread(fetch: Callable[[], Any], vendor: str) -> Any:
    """Run a vendor's library in a thread; whatever it raises means missing credentials."""
    try:
        return await asyncio.to_thread(fetch)
    except Exception as error:
        raise AuthenticationFailed(
            f"no credentials for {vendor}: {type(error).__name__}: {error}"
        ) from error


def entra_token(address: str) -> Authorizer:
    """Return the authorizer of Azure: the login of Azure's tools, a service principal, …"""
    require_extra("azure", "azure.identity")
    credential: Any = None

    def fetch() -> Token:
        nonlocal credential
        from azure.identity import DefaultAzureCredential

        credential = credential or DefaultAzureCredential()
        token = credential.get_token(ENTRA_SCOPE)
        return Token(token.token, float(token.expires_on))

    return BearerToken(fetch, "Azure")


def google_token(address: str) -> Authorizer:
    """Return the authorizer of Vertex AI: Application Default Credentials."""
    require_extra("vertex", "google.auth")
    credentials: Any = None

    def fetch() -> Token:
        nonlocal credentials
        import google.auth
        from google.auth.transport.requests import Request

        if credentials is None:
            credentials, _ = google.auth.default(scopes=[GOOGLE_SCOPE])
        credentials.refresh(Request())
        if credentials.expiry is None:
            return Token(credentials.token, time.time() + 2 * RENEW_SECONDS)
        return Token(credentials.token, credentials.expiry.replace(tzinfo=UTC).timestamp())

    return BearerToken(fetch, "Google Cloud")


def aws_signature(address: str) -> Authorizer:
    """Return the authorizer of Bedrock: the account's keys, a profile, a role, …"""
    require_extra("bedrock", "botocore")
    return AwsSignature(aws_region(address))


def aws_region(address: str) -> str:
    found = re.search(r"bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.", address)
    if found is None:
        raise ConfigError(
            f"{address} does not name its AWS region; "
            f"expected an address such as https://bedrock-runtime.eu-central-1.amazonaws.com"
        )
    return found[1]


class AwsSignature:
    """Signs calls with AWS Signature Version 4; botocore renews the keys of a role."""

    def __init__(self, region: str, credentials: Any = None) -> None:
        self._region = region
        self._credentials = credentials

    async def headers(self, call: HttpCall) -> Mapping[str, str]:
        signed: Mapping[str, str] = await _in_thread(lambda: self._sign(call), "AWS")
        return signed

    def _sign(self, call: HttpCall) -> dict[str, str]:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.session import Session

        if self._credentials is None:
            self._credentials = Session().get_credentials()
            if self._credentials is None:
                raise LookupError("set AWS_ACCESS_KEY_ID, AWS_PROFILE or AWS_BEARER_TOKEN_BEDROCK")
        request = AWSRequest(
            "POST", call.url, {"Content-Type": "application/json"}, fields.dump_json(call.body)
        )
        frozen = self._credentials.get_frozen_credentials()
        SigV4Auth(frozen, AWS_SERVICE, self._region).add_auth(request)
        return dict(request.headers.items())


def require_extra(extra: str, package: str) -> None:
    """Raise `ConfigError` if the package of an extra is not installed."""
    try:
        found = find_spec(package)
    except ModuleNotFoundError:  # the package that contains it is not there either
        found = None
    if found is None:
        raise ConfigError(
            f"{extra} needs the extra {extra}; install it by: {install_command(extra)}"
        )
