"""`python -m podium` is `podium`. Ctrl-C is answered in one line from the first import on.

Run as a file (`python -P src/podium/__main__.py`) it guards the import of the package, too.
"""

import sys

INTERRUPTED = 130


def main() -> int:
    """Import the command line, run it, and give the exit code."""
    try:
        from podium.cli import main

        return main()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("podium: interrupted\n")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
