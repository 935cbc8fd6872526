"""The script that the sandbox starts: it loads this package and nothing else of Podium."""

import os
import sys
from types import ModuleType

HERE = os.path.dirname(os.path.abspath(__file__))


def register_parent_packages() -> None:
    """Register the parent packages by name only, without importing them.

    Their imports would slow every start and lie in the program's memory.
    """
    for name, directory in (
        ("podium", os.path.dirname(os.path.dirname(os.path.dirname(HERE)))),
        ("podium.workers", os.path.dirname(os.path.dirname(HERE))),
        ("podium.workers.sandbox", os.path.dirname(HERE)),
        ("podium.workers.sandbox.child", HERE),
    ):
        package = ModuleType(name)
        package.__path__ = [directory]
        sys.modules[name] = package


if __name__ == "__main__":
    register_parent_packages()
    from podium.workers.sandbox.child.main import main

    main()
