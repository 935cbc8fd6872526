"""`@worker`: a worker made of a function.

@worker
def shout(prompt: str) -> str:
"Repeats you, loudly."
return prompt.upper()

Podium([shout]).ask("hello")
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, overload

from podium.core.errors import BadReply
from podium.core.pool import WorkerProfile
from podium.core.request import FREE, NO_USAGE, Price, Reply, Request
from podium.core.worker import Worker

WorkerFunction = Callable[[str], str | Reply | Awaitable[str | Reply]]
"""Takes the prompt and returns the reply; it may be a coroutine function."""

FUNCTION_PROVIDER: Final = "function"


class FunctionWorker(Worker):
    """A worker whose replies a function returns. Calling the worker calls the function.

    Args:
        function: Takes the prompt; a function that is not a coroutine function runs in a thread.
        profile: The worker as data.

    """

    def __init__(self, function: WorkerFunction, profile: WorkerProfile) -> None:
        self.profile = profile
        self._function = function

    def __call__(self, prompt: str) -> str | Reply | Awaitable[str | Reply]:
        return self._function(prompt)

    async def reply(self, request: Request) -> Reply:
        """Return what the function returns for the last message of the request."""
        prompt = request.messages[-1].text
        function: Callable[[str], Any] = self._function
        is_coroutine = inspect.iscoroutinefunction(function)
        found = await (function(prompt) if is_coroutine else asyncio.to_thread(function, prompt))
        if isinstance(found, str):
            return Reply(found, NO_USAGE)
        if isinstance(found, Reply):
            return found
        raise BadReply(
            f"the function of worker {self.profile.name} returned {type(found).__name__}; "
            f"return a str or a Reply"
        )


@overload
def worker(function: WorkerFunction, /) -> FunctionWorker: ...


@overload
def worker(
    *, name: str = "", description: str = "", price: Price = FREE
) -> Callable[[WorkerFunction], FunctionWorker]: ...


def worker(
    function: WorkerFunction | None = None,
    /,
    *,
    name: str = "",
    description: str = "",
    price: Price = FREE,
) -> FunctionWorker | Callable[[WorkerFunction], FunctionWorker]:
    """Make a worker of a function from prompt to reply; use it as a decorator.

    Args:
        function: The function, or coroutine function. It returns a text or a `Reply`.
        name: The worker's name; by default the function's.
        description: The line by which a conductor chooses the worker; by default the first line of
            the function's docstring.
        price: The price of the tokens that its replies report; by default it is free.

    Returns:
        The worker; without a function, a decorator that makes one.

    """

    def make(function: WorkerFunction) -> FunctionWorker:
        documented = (inspect.getdoc(function) or "").partition("\n")[0]
        profile = WorkerProfile(
            name=name or getattr(function, "__name__", "function"),
            description=description or documented,
            provider=FUNCTION_PROVIDER,
            price=price,
        )
        return FunctionWorker(function, profile)

    return make if function is None else make(function)
