"""The page docs/reference/clients.md, made from the cases by `./scripts/clients --docs`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from clients.cases import CLIENTS, Client

PATH: Final = Path(__file__).parents[2] / "docs" / "reference" / "clients.md"
DIALECTS: Final = {"chat": "Chat Completions", "responses": "Responses", "messages": "Messages"}

HEAD: Final = """# Clients

<!-- made by ./scripts/clients --docs, not by hand -->

Every client below is run unmodified against `podium serve`, beside a control: the same client
straight to the upstream. A case passes if the client ends with the same messages and objects, all
ids differ, and the workers were sent what the client sent. All cases pass. The model is `podium`,
`podium-ultra` or a worker's own name; the key is any text unless the server
[requires keys](keys.md). What a client sends needs a worker that has it: tools, a JSON schema,
images ([connect models](../connect-models.md)).

| client | base URL | API | settings | caveats | cases |
|---|---|---|---|---|---|
"""

TAIL: Final = """
`./test` runs the clients for Python. `./scripts/clients` runs all of them and prints every case.
"""


def text() -> str:
    """Return the page."""
    return HEAD + "".join(map(_row, CLIENTS)) + TAIL


def _row(client: Client) -> str:
    apis = ", ".join(DIALECTS[dialect] for dialect in client.dialects)
    urls = re.sub(r"http[^\s,]+", r"`\g<0>`", client.base_url)
    total = sum(map(len, client.scenarios.values()))
    cells = (
        client.title,
        urls,
        apis,
        client.settings,
        client.caveats,
        str(total),
    )
    return f"| {' | '.join(cells)} |\n"
