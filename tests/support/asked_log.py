"""The command line, with scripted workers that write down what they are asked and have answered.

    python tests/support/asked_log.py LOG eval run …

A line of the log is `asked` or `answered`, the worker, and a hash of the request. A worker has
answered when its caller has the reply and is idle: a kill cannot undo what follows. A worker's
reply depends only on its request.
"""

from __future__ import annotations

import asyncio
import os
import sys
from hashlib import blake2b

from podium.cli import main
from podium.core.pool import WorkerProfile
from podium.core.request import Reply, Request, Usage
from podium.core.worker import Worker
from podium.workers import scripted
from podium.workers.endpoints import Endpoint
from podium.workers.http import Http

SECONDS = 0.002
"""How long a reply takes, so that several calls are always under way."""


class LoggedWorker(Worker):
    """Knows about half of the answers."""

    def __init__(self, profile: WorkerProfile, log: int) -> None:
        self.profile = profile
        self._log = log

    async def reply(self, request: Request) -> Reply:
        text = f"{self.profile.name}\0{request!r}"
        digest = blake2b(text.encode(), digest_size=8).hexdigest()
        self._note("asked", digest)
        await asyncio.sleep(SECONDS)
        asyncio.get_running_loop().call_soon(self._note, "answered", digest)
        answer = "42" if int(digest, 16) % 2 else digest
        return Reply(answer, Usage(10, 2, 0, 0, 0))

    def _note(self, what: str, digest: str) -> None:
        os.write(self._log, f"{what} {self.profile.name} {digest}\n".encode())


def run(log_path: str, *arguments: str) -> int:
    log = os.open(log_path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def made(profile: WorkerProfile, endpoint: Endpoint, http: Http) -> LoggedWorker:
        return LoggedWorker(profile, log)

    scripted.scripted_worker = made  # type: ignore[assignment]
    return main(list(arguments))


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
