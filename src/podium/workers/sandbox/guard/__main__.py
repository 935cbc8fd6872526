"""The script that the sandbox starts: the guard and nothing else of Podium."""

import os
import sys
from types import ModuleType

HERE = os.path.dirname(os.path.abspath(__file__))


def open_this_room_only() -> None:
    """The packages above this one by name alone: what they import would be a slow start, and
    would lie in the memory of the program."""
    for name, place in (
        ("podium", os.path.dirname(os.path.dirname(os.path.dirname(HERE)))),
        ("podium.workers", os.path.dirname(os.path.dirname(HERE))),
        ("podium.workers.sandbox", os.path.dirname(HERE)),
        ("podium.workers.sandbox.guard", HERE),
    ):
        package = ModuleType(name)
        package.__path__ = [place]
        sys.modules[name] = package


if __name__ == "__main__":
    open_this_room_only()
    from podium.workers.sandbox.guard.request import main

    main()
