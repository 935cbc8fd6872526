"""Runs a command of the superuser's as an ordinary user who may read what the superuser's Python
needs: `python ordinary_user.py PLACE COMMAND...`, with an empty directory to work in."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from podium.workers.sandbox.child import isolation, kernel

BIND = kernel.MS_BIND | kernel.MS_REC


def open_to_everyone(needed: list[Path], where: Path) -> None:
    """In mounts of our own: make what is needed readable where a directory above it is not."""
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    closed: dict[Path, list[tuple[Path, Path]]] = {}
    for number, path in enumerate(needed):
        above = [one for one in reversed(path.parents) if not one.stat().st_mode & 0o1]
        if above:
            kept = where / str(number)
            kept.mkdir()
            kernel.mount(str(path), str(kept), "", BIND)
            closed.setdefault(above[0], []).append((kept, path))
    for directory, paths in closed.items():
        kernel.mount("tmpfs", str(directory), "tmpfs", 0, "mode=755")
        for kept, path in paths:
            path.mkdir(parents=True)
            kernel.mount(str(kept), str(path), "", BIND)


def main() -> None:
    where = Path(sys.argv[1])
    where.chmod(0o777)
    needed = [Path(path) for path in isolation.python_paths()]
    open_to_everyone([*needed, Path(kernel.__file__).parents[4]], where)
    os.setgroups([])
    os.setresgid(isolation.NOBODY_ID, isolation.NOBODY_ID, isolation.NOBODY_ID)
    os.setresuid(isolation.NOBODY_ID, isolation.NOBODY_ID, isolation.NOBODY_ID)
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
