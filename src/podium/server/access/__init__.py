"""Access control: API keys, quotas, rate limits and checks on requests.

`AccessPolicy` serves every request; its subclass `KeyAuthenticator` requires API keys.
"""

from __future__ import annotations

from podium.server.access.authenticator import KeyAuthenticator
from podium.server.access.policy import AccessPolicy, Principal, RequestCost

__all__ = ["AccessPolicy", "KeyAuthenticator", "Principal", "RequestCost"]
