"""Who may use the server, for what, how fast and for how much.

    visitor = await door.authenticate(token)                              # 401
    visitor.require("runs:read")                                   # 403
    await door.begin(visitor, model="podium", tokens=900) # 403, 402, 429
    ...                                                            # the run, within door.budget_for
    await door.settle(visitor, model="podium", usage=…, orchestration=…, cost_usd=…)

`keys` makes tokens and checks them, `principal` is who stands at the door, `purse` and `rates` hold
a key to its limits, and `till` does with other processes; `book` writes down what was used,
`experience` guesses what will be, and `gatekeeper` puts them together. The
`KeyAuthenticator` asks for keys, the `AllowAll` lets everyone in. What keys and their rules are is
`podium.store.keys`; nothing here knows HTTP.
"""

from __future__ import annotations

from podium.server.access.authenticator import KeyAuthenticator
from podium.server.access.policy import AccessPolicy, AllowAll, Principal

__all__ = ["AccessPolicy", "AllowAll", "KeyAuthenticator", "Principal"]
