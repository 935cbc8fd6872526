"""The script that the sandbox starts: the guard and nothing else of Podium."""

import sys
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent


def open_this_room_only() -> None:
    """The packages above this one by name alone: what they import would be a slow start, and
    would lie in the memory of the program."""
    for name, place in (
        ("podium", HERE.parent.parent),
        ("podium.tasks", HERE.parent),
        ("podium.tasks.guard", HERE),
    ):
        package = ModuleType(name)
        package.__path__ = [str(place)]
        sys.modules[name] = package


if __name__ == "__main__":
    open_this_room_only()
    from podium.tasks.guard.request import main

    sys.exit(main())
