"""The command line. Each command's module is imported when the command is called."""

from podium.cli.app import main

__all__ = ["main"]
