"""Access control: API keys, quotas, rate limits and checks on requests.

`policy` is the interface to the server; `KeyAuthenticator` requires API keys, `AllowAll` none.
"""

from __future__ import annotations

from podium.server.access.authenticator import KeyAuthenticator
from podium.server.access.policy import AccessPolicy, AllowAll, Principal, RequestQuota

__all__ = ["AccessPolicy", "AllowAll", "KeyAuthenticator", "Principal", "RequestQuota"]
