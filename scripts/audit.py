"""Check that all dependencies are pinned, hashed, and from the package index.

Reads lock files, the table of dependencies and every file that installs something. With `--online`
pip-audit looks up each locked version; without it or its database, the check
prints a warning and passes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

INSTALLERS = ("Dockerfile", "test", "podium", "scripts/*", ".ci/*", "deploy/**/*", "compose.yaml")
"""Where something may be installed from."""

ALLOWED = (
    'uv pip install --quiet --python "$python" pip',  # pip itself, for what uv does not find
    '"$python" -P -m pip install -qq --disable-pip-version-check "$1"',  # torch, by its version
    "pip install --no-deps .",  # Podium itself, in its image
    "podium/bin/pip install -q /tmp/{wheel.name}",  # the wheel, as users do
    "podium/bin/pip install -q openai",  # a client beside it
)
"""What is installed without a hash, and why; SECURITY.md says so too."""

PINNED = re.compile(r"[a-z0-9][a-z0-9._-]*(\[[a-z0-9,_-]+\])?==[^\s;]+(\s*;.*)?")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
COULD_NOT_LOOK = ("ConnectionError", "Max retries", "ServiceError", "Failed to", "timed out")
NOT_LOOKED_UP = "could not be audited"
"""What pip-audit says of a version that its database does not have, or that a mirror hides."""


def entries(lock: str) -> Iterator[str]:
    """Return the entries of a lock file, each in one line."""
    for entry in lock.replace("\\\n", " ").splitlines():
        if entry.strip() and not entry.startswith("#"):
            yield " ".join(entry.split())


def problems_of_lock(name: str, lock: str) -> Iterator[str]:
    """Yield the problems of a lock file."""
    for entry in entries(lock):
        requirement, *hashes = re.split(r" (?=--hash=)", entry)
        if not PINNED.fullmatch(requirement):
            yield f"{name}: {requirement!r} is no version of a package; run ./scripts/lock"
        elif not hashes or not all(HASH.fullmatch(item) for item in hashes):
            yield f"{name}: {requirement} has no hash, or one that is none; run ./scripts/lock"


def problems_of_table(table: str) -> Iterator[str]:
    """Yield the problems of the dependencies in pyproject.toml."""
    project = tomllib.loads(table)
    groups = {
        "dependencies": project["project"]["dependencies"],
        **project["project"].get("optional-dependencies", {}),
        **project.get("dependency-groups", {}),
    }
    for group, requirements in groups.items():
        for requirement in requirements:
            if "@" in requirement or "://" in requirement:
                yield f"pyproject.toml: {group} has {requirement!r}, which is from elsewhere"


def problems_of_installer(name: str, text: str) -> Iterator[str]:
    """Yield installations without a hash, or from elsewhere."""
    for line in text.replace("\\\n", " ").splitlines():
        command = " ".join(line.split())
        if command.startswith("#") or not re.search(r"\b(pip|uv pip) install\b", command):
            continue
        if re.search(r"--(extra-)?index-url|--find-links|--trusted-host|git\+|https?://", command):
            yield f"{name}: {command!r} installs from elsewhere"
        elif "--require-hashes" not in command and not any(item in command for item in ALLOWED):
            yield f"{name}: {command!r} installs without --require-hashes"


def problems(root: Path) -> Iterator[str]:
    """Yield every problem."""
    for lock in sorted(root.glob("requirements*.lock")):
        yield from problems_of_lock(lock.name, lock.read_text("utf-8"))
    yield from problems_of_table((root / "pyproject.toml").read_text("utf-8"))
    for pattern in INSTALLERS:
        for file in sorted(root.glob(pattern)):
            if file.is_file() and file.name != Path(__file__).name:
                yield from problems_of_installer(
                    str(file.relative_to(root)), file.read_text("utf-8")
                )


def look_up(root: Path) -> int:
    """Run pip-audit over the locked versions; return 1 if one is vulnerable."""
    if find_spec("pip_audit") is None:
        say("SKIPPED: pip-audit is not installed, so nothing is known of vulnerabilities")
        return 0
    worst = 0
    for lock in sorted(root.glob("requirements*.lock")):
        command = (sys.executable, "-P", "-m", "pip_audit", "--require-hashes", "--disable-pip")
        ended = subprocess.run(  # noqa: S603 - our own arguments
            (*command, "-r", str(lock)), capture_output=True, text=True, check=False
        )
        output = ended.stdout + ended.stderr
        if ended.returncode and any(item in output for item in COULD_NOT_LOOK):
            say(f"SKIPPED: {lock.name} could not be looked up: {output.strip().splitlines()[-1]}")
            continue
        if unknown := output.count(NOT_LOOKED_UP):
            say(f"SKIPPED: {unknown} versions of {lock.name} are not in the database, or hidden")
        say(f"{lock.name}: {output.strip()}")
        worst = max(worst, ended.returncode)
    return worst


def say(line: str) -> None:
    """Print a line to standard error."""
    sys.stderr.write(f"audit: {line}\n")


def main(arguments: list[str]) -> int:
    """Print every problem; return the exit code."""
    found = list(problems(ROOT))
    for problem in found:
        say(problem)
    if found:
        return 1
    say("every requirement is pinned with hashes, and nothing is installed from elsewhere")
    if "--online" in arguments:
        return look_up(ROOT)
    say("whether a version is known to be vulnerable was not looked up; --online does that")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
