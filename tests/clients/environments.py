"""The environments that clients run in: found here, set up once by `./scripts/clients --prepare`.

Each is pinned by a lock file in `environments/`, and stamped with the file that it was made from.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
HOME: Final = ROOT / ".venv" / "clients"
LOCKS: Final = Path(__file__).parent / "environments"
IS_REQUIRED: Final = os.environ.get("CI", "") not in ("", "0", "false")
"""True where a missing environment is a failure and not a skip."""


def fingerprint(name: str) -> str:
    """Return the stamp of an environment that is up to date."""
    lock = "npm/package-lock.json" if name == "npm" else f"{name}.lock"
    return hashlib.sha256((LOCKS / lock).read_bytes()).hexdigest()


def stamp_of(name: str) -> Path:
    """Return the file that says what an environment was made from."""
    return HOME / f"{name}.installed"


def is_ready(name: str) -> bool:
    """True if the environment holds what its lock file says."""
    stamp = stamp_of(name)
    return stamp.is_file() and stamp.read_text("utf-8").strip() == fingerprint(name)


def python_of(name: str) -> Path:
    """Return the interpreter of an environment."""
    return HOME / name / "bin" / "python"


def missing(name: str) -> str:
    """Return what to tell people who lack an environment."""
    return (
        f"CLIENTS NOT TESTED: the environment {name!r} of tests/clients is missing or out of date; "
        f"`./scripts/clients --prepare` makes it (needs a network)"
    )
