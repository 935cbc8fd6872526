"""`python -m benchmarks`: measure Podium beside its peers on this machine."""

from benchmarks.cli import app

if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
