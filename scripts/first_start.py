"""Starts Podium as a newcomer would, on a machine that has nothing but Python, and times it.

    sudo .venv/bin/python scripts/first_start.py [--log FILE] [--root DIR]

The machine is a root directory made by debootstrap: Debian with Python and certificates, its own
processes and an empty home, and this machine's network. In it, as a user without rights: the wheel,
`podium init --yes`, `podium ask`, `podium serve`, the OpenAI SDK. A browser outside then chats with
that server. Needs root, debootstrap, chromium, and a package index that has the model.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Final, TextIO

from playwright.sync_api import sync_playwright

REPOSITORY: Final = Path(__file__).parent.parent
PACKAGES: Final = "python3,python3-venv,ca-certificates"
CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
USER: Final = 1000
HOME: Final = "/home/ada"
PATH: Final = f"{HOME}/podium/bin:/usr/bin:/bin"
QUESTION: Final = "What is the capital of France?"
CALL: Final = """
from openai import OpenAI
client = OpenAI(base_url="{address}/v1", api_key="none")
said = client.chat.completions.create(
    model="podium", messages=[{{"role": "user", "content": "What is 5 times 7?"}}])
print(said.choices[0].message.content, said.usage.total_tokens, "tokens")
"""


class Log:
    """Writes every step with its time to a file and to the terminal."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.seconds: dict[str, float] = {}

    def write(self, text: str) -> None:
        """Write a line to both."""
        for stream in (self._file, sys.stdout):
            stream.write(f"{text}\n")
            stream.flush()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time the block."""
        self.write(f"== {name}")
        begun = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - begun
        self.write(f"-- {self.seconds[name]:.1f} s")


class Machine:
    """A root directory with Python, entered as a user without rights."""

    def __init__(self, root: Path, log: Log) -> None:
        self.root, self._log = root, log

    def prepare(self) -> None:
        """Make the root directory, unless an earlier call left one."""
        if not (self.root / "usr/bin/python3").exists():
            subprocess.run(
                ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "trixie", self.root],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        subprocess.run(["chroot", self.root, "dpkg", "--purge", "libgomp1"], check=False)
        for file in (CERTIFICATES, Path("/etc/resolv.conf")):
            shutil.copy(file, self.root / file.relative_to("/"))
        home = self.root / HOME.lstrip("/")
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        os.chown(home, USER, USER)

    def command(self, script: str) -> list[str]:
        """Return the command line that runs a script in there."""
        inside = f"cd {HOME} && {script}"
        clean = ["env", "-i", f"HOME={HOME}", f"PATH={PATH}", "LANG=C.UTF-8", "sh", "-c", inside]
        entered = ["chroot", f"--userspec={USER}:{USER}", str(self.root), *clean]
        proc = f"--mount-proc={self.root}/proc"
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child=TERM", proc, *entered]

    def run(self, script: str, *, expected: int = 0) -> None:
        """Run a script in there, its output in the log; raise if it ends otherwise."""
        self._log.write(f"$ {script}")
        ended = subprocess.run(
            self.command(script),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self._log.write(ended.stdout.rstrip())
        if ended.returncode != expected:
            raise SystemExit(f"it ended with {ended.returncode}")

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Start `podium serve` in there, and yield its address."""
        self._log.write("$ podium serve --port 0 &")
        process = subprocess.Popen(
            self.command("exec podium serve --port 0"), stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        try:
            for line in process.stderr:
                self._log.write(line.rstrip())
                if found := re.search(r"running on (http://[\d.]+:\d+)", line):
                    break
            else:
                raise SystemExit("podium serve ended before it listened")
            yield found[1]
        finally:
            server = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("utf-8")
            os.kill(int(server), signal.SIGTERM)  # unshare itself ignores the signal
            process.communicate(timeout=60)


def chat(address: str, picture: Path, log: Log) -> None:
    """Ask a question on the first page, and wait until its answer stands there."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1200, "height": 820})
        page.goto(address)
        page.get_by_role("textbox").last.fill(QUESTION)
        page.keyboard.press("Control+Enter")
        page.get_by_text("Paris").first.wait_for(timeout=120_000)
        page.screenshot(path=picture)
        log.write(f"{page.title()}: the page shows Paris; {picture.name} is its picture")
        browser.close()


def start(root: Path, log: Log, picture: Path) -> None:
    """Run every step from the wheel to the browser."""
    machine = Machine(root, log)
    with log.step("make the wheel"):
        dist = Path(mkdtemp())
        build = [sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist)]
        subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
        (wheel,) = dist.glob("*.whl")
        log.write(f"{wheel.name}: {wheel.stat().st_size:,} bytes")
    with log.step("make a root with nothing but Python (not the newcomer's time)"):
        machine.prepare()
        shutil.copy(wheel, root / "tmp")
        shutil.rmtree(dist)
        machine.run("python3 --version; . /etc/os-release; echo $PRETTY_NAME; id -u; ls -A")
    with log.step("install"):
        machine.run(f"python3 -m venv podium && podium/bin/pip install -q /tmp/{wheel.name}")
        machine.run("podium --version; du -sh podium")
    with log.step("install OpenMP, which llama.cpp needs and Debian's Python does not bring"):
        machine.run("podium init --yes --file tried.toml", expected=1)
        subprocess.run(
            ["chroot", root, "apt-get", "install", "-qq", "--no-install-recommends", "libgomp1"],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    with log.step("podium init"):
        machine.run("podium init --yes")
    with log.step("podium ask"):
        machine.run('podium ask "What is the capital of Italy?"')
    with log.step("podium doctor"):
        machine.run("podium doctor")
    with log.step("install the OpenAI SDK"):
        machine.run("podium/bin/pip install -q openai")
    with log.step("podium serve, until it is stopped"), machine.serve() as address:
        with log.step("SDK call"):
            call = root / "tmp/call.py"
            call.write_text(CALL.format(address=address), "utf-8")
            machine.run("podium/bin/python /tmp/call.py")
        with log.step("browser chat"):
            chat(address, picture, log)
    log.write("\n| step | seconds |\n|---|---|")
    for name, seconds in log.seconds.items():
        log.write(f"| {name} | {seconds:.1f} |")


def main() -> None:
    """Read the command line, and start."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--log", type=Path, default=Path("first-start.log"))
    parser.add_argument("--root", type=Path, help="keep the root directory here")
    given = parser.parse_args()
    root = given.root or Path(mkdtemp())
    root.mkdir(mode=0o755, parents=True, exist_ok=True)
    root.chmod(0o755)
    try:
        with given.log.open("w", encoding="utf-8") as file:
            start(root, Log(file), given.log.with_suffix(".png"))
    finally:
        if given.root is None:
            shutil.rmtree(root)


if __name__ == "__main__":
    main()
