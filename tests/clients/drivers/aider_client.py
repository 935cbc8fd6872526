"""aider, as a person starts it, in an empty directory; called without a new process."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from aider.main import main as aider
from scenario import Endpoint, main, scenario


def run_aider(endpoint: Endpoint, *options: str) -> dict[str, str]:
    os.environ |= {
        "OPENAI_API_BASE": endpoint.openai,
        "OPENAI_API_KEY": endpoint.key,
        "ANTHROPIC_API_BASE": endpoint.url,
        "ANTHROPIC_API_KEY": endpoint.key,
    }
    with tempfile.TemporaryDirectory(dir=Path.home()) as directory:
        os.chdir(directory)
        aider(
            [
                *options,
                *("--yes-always", "--no-check-update", "--analytics-disable", "--no-git"),
                *("--no-show-model-warnings", "--no-pretty", "--edit-format", "whole"),
                *("--no-show-release-notes", "--no-gitignore", "--map-tokens", "0"),
                *("--no-detect-urls", "--no-suggest-shell-commands"),
                *("--message", "Create the file hello.txt"),
            ]
        )
        os.chdir(Path.home())
        return {
            path.name: path.read_text()
            for path in sorted(Path(directory).iterdir())
            if path.is_file() and not path.name.startswith(".")
        }


@scenario("chat/edit")
def edit(endpoint: Endpoint):
    return run_aider(endpoint, "--model", f"openai/{endpoint.model}", "--no-stream")


@scenario("chat/edit-stream")
def edit_stream(endpoint: Endpoint):
    return run_aider(endpoint, "--model", f"openai/{endpoint.model}", "--stream")


@scenario("messages/edit")
def messages_edit(endpoint: Endpoint):
    return run_aider(endpoint, "--model", f"anthropic/{endpoint.model}", "--stream")


main()
