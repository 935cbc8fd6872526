"""Count the hops of three walks through Podium: a question, a request, a training step.

    python scripts/hops.py [--tree CLONE]

A hop is a call that enters another module of Podium. A profiler counts them: `hops` are distinct
pairs of caller and callee, `calls` all calls, beside the modules and functions that were entered.
`--tree` measures another checkout with the same Python.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

WALKS = ("ask", "chat", "train")
PORT = 18_931
SETTLE_SECONDS = 1.0


class HopCounter:
    """Profile this thread and count calls between modules of Podium."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()

    def start(self) -> None:
        """Count from here on."""
        self.calls.clear()
        sys.setprofile(self._count)

    def _count(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_code.co_name == "<module>":
            return
        module = frame.f_globals.get("__name__", "")
        if not module.startswith("podium"):
            return
        caller = frame.f_back
        while caller is not None and not str(caller.f_globals.get("__name__")).startswith("podium"):
            caller = caller.f_back
        above = "" if caller is None else str(caller.f_globals["__name__"])
        if above != module:
            source = "" if caller is None else caller.f_code.co_qualname
            self.calls[f"{above}:{source}", f"{module}:{frame.f_code.co_qualname}"] += 1

    def summary(self) -> dict[str, int]:
        """Return the counts."""
        entered = {callee for _, callee in self.calls}
        return {
            "hops": len(self.calls),
            "calls": sum(self.calls.values()),
            "modules": len({name.partition(":")[0] for name in entered}),
            "functions": len(entered),
        }


def walk_ask(counter: HopCounter, tree: Path) -> None:
    """Run `podium ask` over scripted workers."""
    from podium.cli import main

    counter.start()
    main(["ask", "--pool", "scripted", "Compare tea and coffee", "--json"])


def walk_chat(counter: HopCounter, tree: Path) -> None:
    """Post the second of two chat completions to `podium serve`."""
    from podium.cli import main

    body = {
        "model": "podium-ultra",
        "messages": [{"role": "user", "content": "Compare tea and coffee"}],
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )

    def post() -> None:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310 - loopback
            response.read()

    def client() -> None:
        for _ in range(100):
            try:
                post()
                break
            except OSError:
                time.sleep(0.2)
        time.sleep(SETTLE_SECONDS)
        counter.calls.clear()
        post()
        time.sleep(SETTLE_SECONDS)
        report(counter)
        os._exit(0)

    threading.Thread(target=client, daemon=True).start()
    counter.start()
    main(["serve", "--pool", "scripted", "--port", str(PORT)])


def walk_train(counter: HopCounter, tree: Path) -> None:
    """Train a tiny conductor by GRPO."""
    sys.path.insert(0, str(tree / "tests"))
    import pytest
    import torch

    from podium.train.grpo import train
    from support.tiny_model import tiny_model
    from support.trainings import REWARD, let_it_plan, tiny_recipe

    torch.set_num_threads(1)
    directory = Path(tempfile.mkdtemp())
    recipe = tiny_recipe(REWARD, tiny_model(directory / "base", "qwen2"), directory)
    with pytest.MonkeyPatch.context() as patch:
        let_it_plan(patch)
        counter.start()
        train(recipe)


def report(counter: HopCounter) -> None:
    """Write the counts where the parent process expects them."""
    sys.setprofile(None)
    Path(os.environ["HOPS_OUTPUT"]).write_text(json.dumps(counter.summary()), "utf-8")
    if pairs := os.environ.get("HOPS_PAIRS"):
        Path(pairs).write_text("\n".join(f"{n} {a} -> {b}" for (a, b), n in counter.calls.items()))


def measure(walk: str, tree: Path) -> dict[str, int]:
    """Count one walk in a process of its own."""
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "hops.json"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(tree / part) for part in ("src", "lab", ".")),
            "PODIUM_HOME": directory,
            "HOPS_OUTPUT": str(output),
        }
        subprocess.run(  # noqa: S603 - this very script
            [sys.executable, __file__, "--tree", str(tree), "--walk", walk],
            env=environment,
            cwd=directory,
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return json.loads(output.read_text("utf-8"))  # type: ignore[no-any-return]


def main() -> None:
    """Print the counts of every walk."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--walk", choices=WALKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    tree = options.tree.resolve()
    if options.walk:
        counter = HopCounter()
        globals()[f"walk_{options.walk}"](counter, tree)
        report(counter)
        return
    for walk in WALKS:
        print(walk, json.dumps(measure(walk, tree)))  # noqa: T201 - the report


if __name__ == "__main__":
    main()
