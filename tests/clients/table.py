"""Install clients, run them through `podium serve`, and print the table: see `scripts/clients`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src"), str(ROOT)]

from clients import environments, page
from clients.cases import CLIENTS, Case, Client, Tier
from clients.harness import command_for, run_client
from clients.verdict import problems

PYTHON_ENVIRONMENTS = tuple(
    dict.fromkeys(client.environment for client in CLIENTS if client.environment != "npm")
)


def say(text: str) -> None:
    """Tell the person at the terminal what happens."""
    sys.stderr.write(f"podium: {text}\n")


def find_uv() -> Path:
    """Return uv: the one on the PATH, or one in an environment of its own."""
    if found := shutil.which("uv"):
        return Path(found)
    home = environments.HOME / "uv"
    if not (home / "bin" / "uv").exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        install = ("install", "-q", "--disable-pip-version-check", "uv")
        subprocess.run([str(home / "bin" / "pip"), *install], check=True)
    return home / "bin" / "uv"


def prepare(name: str) -> None:
    """Make an environment as its lock file says, unless it is there."""
    if environments.is_ready(name):
        return
    say(f"installing the clients of tests/clients/environments/{name} (once; a minute or two)")
    environments.HOME.mkdir(parents=True, exist_ok=True)
    directory = environments.HOME / name
    if name == "npm":
        directory.mkdir(exist_ok=True)
        for file in ("package.json", "package-lock.json"):
            shutil.copy(environments.LOCKS / name / file, directory / file)
        quiet = ("--silent", "--no-audit", "--no-fund")
        # Not `npm ci`, which misses other platforms' optional packages where a mirror has none.
        subprocess.run(("npm", "install", "--no-save", *quiet), cwd=directory, check=True)
    else:
        uv = str(find_uv())
        lock = str(environments.LOCKS / f"{name}.lock")
        python = str(environments.python_of(name))
        subprocess.run(
            [uv, "venv", "-q", "--clear", "--python", sys.executable, str(directory)], check=True
        )
        subprocess.run(
            [uv, "pip", "sync", "-q", "--python", python, "--require-hashes", lock], check=True
        )
    environments.stamp_of(name).write_text(environments.fingerprint(name), "utf-8")


def prepare_all(names: Sequence[str]) -> int:
    """Make environments; the status is 1 where one cannot be made."""
    failed = 0
    for name in names:
        try:
            prepare(name)
        except (OSError, subprocess.CalledProcessError) as error:
            say(f"{error}")
            say(environments.missing(name))
            failed = 1
    return failed


def write_locks() -> None:
    """Resolve what the `.in` files ask for, with versions that still fit kept."""
    for name in PYTHON_ENVIRONMENTS:
        source, lock = (environments.LOCKS / f"{name}.{suffix}" for suffix in ("in", "lock"))
        subprocess.run(
            [
                *(str(find_uv()), "pip", "compile", str(source), "--universal", "--quiet"),
                *("--python-version", "3.11", "--generate-hashes", "--no-emit-index-url"),
                *("--no-annotate", "--custom-compile-command", "./scripts/clients --lock"),
                *("--output-file", str(lock)),
            ],
            check=True,
            cwd=ROOT,
        )


PATIENCE: Final = 600.0
"""Seconds for a client's scenarios, on a machine that is busy with others too."""

TIERS: Final[tuple[Tier, ...]] = ("worker", "podium", "podium-ultra")


def run_table(wanted: Sequence[str]) -> int:
    """Run clients, print a line for each case and the table; the status is 1 if one fails."""
    verdicts: dict[Case, str] = {}
    status = 0
    for client in CLIENTS:
        if wanted and client.name not in wanted:
            continue
        if prepare_all((client.environment,)):
            status = 1
            continue
        with tempfile.TemporaryDirectory() as directory:
            try:
                results = run_client(client, command_for(client), Path(directory), PATIENCE)
            except subprocess.TimeoutExpired as error:
                say(str(error))
                results = {}
            if kept := os.environ.get("CLIENTS_KEEP"):
                shutil.copytree(directory, Path(kept) / client.name, dirs_exist_ok=True)
        for case in _cases_of(client):
            verdict, reason = _judge(case, results)
            verdicts[case] = verdict
            dialect, _, name = case.scenario.partition("/")
            row = f"{client.title:28} {dialect:10} {case.tier:13} {name:26} {verdict}"
            sys.stdout.write(f"{row}  {reason[:160]}\n" if reason else f"{row}\n")
            sys.stdout.flush()
    _print_summary(verdicts)
    return status or int("fail" in verdicts.values())


def _print_summary(verdicts: Mapping[Case, str]) -> None:
    """Print how many cases pass, by client, dialect and tier."""
    heads = "".join(f"{tier:>14}" for tier in TIERS)
    sys.stdout.write(f"\n{'client':28} {'dialect':10}{heads}\n")
    rows = dict.fromkeys((case.client, case.dialect) for case in verdicts)
    for client, dialect in rows:
        cells = ""
        for tier in TIERS:
            found = [
                verdict
                for case, verdict in verdicts.items()
                if (case.client, case.dialect, case.tier) == (client, dialect, tier)
            ]
            passing = f"{found.count('pass')}/{len(found)}" if found else ""
            cells += f"{passing:>14}"
        sys.stdout.write(f"{client.title:28} {dialect:10}{cells}\n")
    counts = sorted(Counter(verdicts.values()).items())
    parts = ", ".join(f"{count} {verdict}" for verdict, count in counts)
    clients = {case.client.name for case in verdicts}
    sys.stdout.write(f"{len(clients)} clients, {len(verdicts)} cases: {parts}\n")


def _cases_of(client: Client) -> list[Case]:
    return [Case(client, name, tier) for name, tiers in client.scenarios.items() for tier in tiers]


def _judge(case: Case, results: Mapping[str, Any]) -> tuple[str, str]:
    try:
        found = problems(case, results)
    except (AssertionError, KeyError) as error:
        return "fail", f"no result: {error}"
    return ("fail", " ".join("; ".join(found).split())) if found else ("pass", "")


def main() -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(prog="scripts/clients")
    parser.add_argument("--prepare", action="store_true", help="install clients and run none")
    parser.add_argument("--lock", action="store_true", help="write the lock files anew")
    parser.add_argument("--docs", action="store_true", help="write docs/reference/clients.md anew")
    parser.add_argument("names", nargs="*", help="clients; with --prepare, environments")
    options = parser.parse_args()
    if options.lock:
        write_locks()
        return 0
    if options.docs:
        page.PATH.write_text(page.text(), "utf-8")
        return 0
    if options.prepare:
        return prepare_all(options.names or PYTHON_ENVIRONMENTS)
    return run_table(options.names)


if __name__ == "__main__":
    sys.exit(main())
