"""The pool of a machine with no key and no configuration.

It is an ordinary pool file that lies beside this module, so that everything which reads pools
reads this one, and a better one (a trained conductor, an adapter for each worker) is a matter of
data: `adapter` among a worker's options names weights as `podium.embedded.sources` has it.
"""

from __future__ import annotations

from pathlib import Path


def embedded_pool() -> Path:
    """The pool file."""
    return Path(__file__).with_name("pool.toml")
