"""A server that is a program: started, spoken to in lines of JSON, and stopped with all it started.

It gets a few harmless variables of the environment and those that are named for it, so that no
key of a vendor reaches it by accident. What it writes to its standard error is not shown; the end
of it explains why it ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Final, Self

from podium.config import McpSettings
from podium.workers.mcp.rpc import (
    CANCELLED,
    LARGEST_MESSAGE,
    McpFault,
    answer_to,
    notification,
    number_of,
    one_line,
    request,
    result_of,
)
from podium.workers.wire import Document, Malformed, parse, write

INHERITED: Final = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TERM",
    "TMPDIR",
    "TZ",
    "SYSTEMROOT",
    "TEMP",
    "APPDATA",
    "LOCALAPPDATA",
    "USERPROFILE",
)
"""What every program needs of the environment to run at all."""

STOP_SECONDS: Final = 2.0
"""How long a program may take to end, when its input ends and again when it is told to."""

MOST_STRAY_LINES: Final = 1000
"""Lines that are no messages: many a program greets, but none may chatter without end."""

_POLL_SECONDS: Final = 0.02
_LAST_WORDS: Final = 4096


class Program:
    """One program at work. Made by `start`. `secrets` are what it was given of the environment and
    might say again."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, secrets: Sequence[str] = ()
    ) -> None:
        assert process.stdin is not None, "it is started with pipes"
        assert process.stdout is not None, "it is started with pipes"
        assert process.stderr is not None, "it is started with pipes"
        self.version = ""
        self._name = name
        self._process = process
        self._secrets = secrets
        self._input = process.stdin
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Document]] = {}
        self._last_words = b""
        self._problem: str | None = None
        self._stray_lines = 0
        self._listener = asyncio.create_task(self._overhear(process.stderr))
        self._reader = asyncio.create_task(self._read(process.stdout))

    @classmethod
    async def start(cls, settings: McpSettings, environment: Mapping[str, str]) -> Self:
        """Start the program, in a group of its own, so that it can be stopped as a whole."""
        names = [name for name in INHERITED if name in environment]
        for name in settings.env:
            if name not in environment:
                raise McpFault(f"{settings.name} needs {name}; set it in the environment")
        try:
            process = await asyncio.create_subprocess_exec(
                settings.command,
                *settings.args,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={name: environment[name] for name in (*names, *settings.env)},
                limit=LARGEST_MESSAGE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise McpFault(
                f"{settings.name} cannot be started: {one_line(str(error))}; check its command"
            ) from error
        return cls(settings.name, process, [environment[name] for name in settings.env])

    @property
    def ended(self) -> bool:
        """Whether the program says nothing any more."""
        return self._problem is not None

    async def request(self, method: str, params: Mapping[str, Any]) -> Document:
        """The result of a request."""
        number = next(self._numbers)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send(request(number, method, params))
            return result_of(await waiting, self._name, self._secrets)
        except asyncio.CancelledError:
            if not self._input.is_closing():
                self._input.write(_line(notification(CANCELLED, {"requestId": number})))
            raise
        finally:
            del self._waiting[number]
            if not waiting.cancel() and not waiting.cancelled():
                waiting.exception()  # seen, also where sending failed before it came

    async def notify(self, method: str) -> None:
        """Tell the program something."""
        await self._send(notification(method))

    async def close(self) -> None:
        """Stop the program and whatever it has started."""
        self._input.close()
        if not await self._ends():
            self._signal(signal.SIGTERM)
            await self._ends()
        if sys.platform != "win32":
            self._signal(signal.SIGKILL)
        await self._ends()
        self._reader.cancel()
        self._listener.cancel()
        await asyncio.gather(self._reader, self._listener, return_exceptions=True)
        self._fail(f"{self._name} is stopped")

    async def _send(self, message: Document) -> None:
        if self._problem is not None:
            raise McpFault(self._problem)
        try:
            self._input.write(_line(message))
            await self._input.drain()
        except (OSError, RuntimeError) as error:
            if asyncio.current_task() is not self._reader:  # which may know more in a moment
                await asyncio.wait({self._reader}, timeout=STOP_SECONDS)
            raise McpFault(self._problem or f"{self._name} does not listen any more") from error

    async def _read(self, output: asyncio.StreamReader) -> None:
        """Take what the program says, to its end."""
        try:
            while line := await output.readline():
                await self._take(line)
                await asyncio.sleep(0)  # others have their turn, however much it says
            await asyncio.wait({self._listener}, timeout=STOP_SECONDS)  # for its last words
            await self._ends()
            self._fail(f"{self._name} has ended{self._reason()}")
        except ValueError:
            most = f"{LARGEST_MESSAGE // 1024**2} MiB"
            self._fail(f"{self._name} sent a message of more than {most}")
        except McpFault as fault:
            self._fail(str(fault))

    async def _take(self, line: bytes) -> None:
        try:
            message = parse(line)
        except (Malformed, UnicodeDecodeError):
            self._stray_lines += 1
            if self._stray_lines > MOST_STRAY_LINES:
                raise McpFault(f"{self._name} writes lines that are no messages") from None
            return
        number = number_of(message)
        if number is not None:
            waiting = self._waiting.get(number)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        elif (said := answer_to(message)) is not None:
            await self._send(said)

    async def _overhear(self, errors: asyncio.StreamReader) -> None:
        """Keep the end of what the program complains of."""
        while piece := await errors.read(_LAST_WORDS):
            self._last_words = (self._last_words + piece)[-_LAST_WORDS:]

    def _fail(self, problem: str) -> None:
        """Nothing can be asked any more; tell who waits."""
        if self._problem is None:
            self._problem = problem
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(McpFault(self._problem))

    def _reason(self) -> str:
        """Why it ended, as far as it is known."""
        code = self._process.returncode
        exit_code = f" with exit code {code}" if code else ""
        lines = self._last_words.decode(errors="replace").strip().splitlines()
        return f"{exit_code}: {one_line(lines[-1], self._secrets)}" if lines else exit_code

    async def _ends(self) -> bool:
        """Whether the program ends soon. Its pipes may be held open by others, so it is looked
        at, not waited for."""
        deadline = asyncio.get_running_loop().time() + STOP_SECONDS
        while self._process.returncode is None:
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    def _signal(self, number: signal.Signals) -> None:
        """Tell the program, and whatever it has started; they may be gone already."""
        try:
            if sys.platform == "win32":
                self._process.terminate()
            else:
                os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return


def _line(message: Document) -> bytes:
    return write(message) + b"\n"
