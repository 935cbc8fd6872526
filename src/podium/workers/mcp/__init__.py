"""The Model Context Protocol: tools of others inside Podium's steps, and Podium as tools of others.

    client    an engine's toolbox over the servers that `podium.toml` names
    server    `podium mcp`: ask and plan, as tools over standard input and output

The protocol is spoken by hand. The official package `mcp` was weighed for it (2.3.0): it brings
eleven packages that a Podium without any such server would install as well, a second HTTP client,
cryptography and OAuth among them, and importing it takes twice the CPU of a whole `podium ask`
over scripted workers (0.9 s against 0.4). What is needed of it is small: JSON-RPC in lines or in
HTTP bodies, and five methods (initialize, ping, tools/list, tools/call, and the notice that a
request was cancelled). The package is what the tests have on the other side of the wire.

The revisions spoken are those that begin with a handshake, to 2025-11-25, which every client and
server of today speaks. Servers' own requests (sampling, roots, elicitation) are declined: Podium
does not offer them, and a reply of a worker is all that may cost money in a run.
"""

from __future__ import annotations
