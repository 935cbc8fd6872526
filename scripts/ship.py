r"""Puts a trained adapter among those that Podium ships, in place of the one of that name.

    .venv/bin/python scripts/ship.py NAME DIR TRAINED_BY

    .venv/bin/python scripts/ship.py etude-conductor trained/etudes/conductor \
        "podium train grpo recipes/etudes.toml, seed 1"

The entry of that name in the manifest says what it is an adapter of; its checksum, its size and
what it was trained by are written anew.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from podium._util.files import sha256_file
from podium.train.gguf import export_adapter
from podium.workers.local import sources as adapters


def ship(name: str, trained: Path, trained_by: str) -> None:
    """Export the adapter in that directory, and update its entry in the manifest."""
    adapter = adapters.shipped_adapter(adapters.PREFIX + name)
    export_adapter(trained, adapter.path, base=adapter.base)
    entries = {
        "sha256": sha256_file(adapter.path),
        "bytes": adapter.path.stat().st_size,
        "trained_by": trained_by,
    }
    manifest = adapters.DIRECTORY / adapters.MANIFEST
    before, heading, rest = manifest.read_text("utf-8").partition(f'name = "{name}"\n')
    entry, following, after = rest.partition("[[adapter]]")
    lines = []
    for line in entry.splitlines():
        key = line.partition(" = ")[0]
        new = json.dumps(entries.get(key), ensure_ascii=False)
        lines.append(f"{key} = {new}\n" if key in entries else f"{line}\n")
    manifest.write_text(before + heading + "".join(lines) + following + after, "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    ship(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
