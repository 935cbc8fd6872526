r"""Puts a trained adapter among those that Podium ships, or cuts the rank of a shipped one.

    .venv/bin/python scripts/ship.py NAME DIR TRAINED_BY
    .venv/bin/python scripts/ship.py --cut RANK NAME

    .venv/bin/python scripts/ship.py etude-conductor trained/etudes/conductor \
        "podium train grpo recipes/etudes.toml, seed 1"

The entry of that name in the manifest says what it is an adapter of; its checksum, its size and
what it was trained by are written anew. A lower rank is the best approximation of each update, by
its singular values.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from podium._util.files import sha256_file
from podium.train.gguf import export_adapter, open_gguf, value_of
from podium.workers.local import sources as adapters


def ship(name: str, trained: Path, trained_by: str) -> None:
    """Export the adapter in that directory, and update its entry in the manifest."""
    adapter = adapters.embedded_adapter(adapters.EMBEDDED_PREFIX + name)
    export_adapter(trained, adapter.path, base=adapter.base)
    update_manifest(name, trained_by)


def cut(name: str, rank: int) -> None:
    """Approximate every update of a shipped adapter by one of that rank."""
    from gguf import GGUFType, GGUFWriter, Keys

    adapter = adapters.embedded_adapter(adapters.EMBEDDED_PREFIX + name)
    reader = open_gguf(adapter.path, "name a shipped adapter")
    halves = {tensor.name: np.array(tensor.data, np.float32) for tensor in reader.tensors}
    writer = GGUFWriter(adapter.path, value_of(reader, "general.architecture"))
    writer.add_type(GGUFType.ADAPTER)
    writer.add_string(Keys.Adapter.TYPE, "lora")
    before = len(next(half for key, half in halves.items() if key.endswith(".lora_a")))
    alpha = value_of(reader, Keys.Adapter.LORA_ALPHA) * rank / before  # the scale stays
    writer.add_float32(Keys.Adapter.LORA_ALPHA, alpha)
    for key in sorted(key.removesuffix(".lora_a") for key in halves if key.endswith(".lora_a")):
        down, up = cut_pair(halves[f"{key}.lora_a"], halves[f"{key}.lora_b"], rank)
        writer.add_tensor(f"{key}.lora_a", down.astype(np.float16))
        writer.add_tensor(f"{key}.lora_b", up.astype(np.float16))
    del reader, halves
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    update_manifest(name, f"{adapter.trained_by}; cut from rank {before} to {rank}")


def cut_pair(down: np.ndarray, up: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the best approximation of `up @ down` by matrices of that rank."""
    left, left_part = np.linalg.qr(up)
    right, right_part = np.linalg.qr(down.T)
    outer, values, inner = np.linalg.svd(left_part @ right_part.T)
    root = np.sqrt(values[:rank])
    return (right @ inner[:rank].T * root).T.copy(), left @ outer[:, :rank] * root


def update_manifest(name: str, trained_by: str) -> None:
    """Write checksum, size and origin of the adapter of that name anew."""
    path = adapters.embedded_adapter(adapters.EMBEDDED_PREFIX + name).path
    entries = {
        "sha256": sha256_file(path),
        "bytes": path.stat().st_size,
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
    match sys.argv[1:]:
        case ["--cut", rank, name]:
            cut(name, int(rank))
        case [name, trained, trained_by]:
            ship(name, Path(trained), trained_by)
        case _:
            sys.exit(__doc__)
