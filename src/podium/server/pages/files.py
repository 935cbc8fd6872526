"""The files that the pages are made of, read once and held in memory, packed and unpacked.

A browser asks for them below an address that holds their common fingerprint, so that it need
never ask for one twice, and never mixes those of two versions. Nothing here knows HTTP but for
the names of types.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Final

STATIC: Final = Path(__file__).parent / "static"

TYPES: Final = MappingProxyType(
    {
        ".html": "text/html; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".css": "text/css; charset=utf-8",
        ".svg": "image/svg+xml",
        ".txt": "text/plain; charset=utf-8",
        ".woff2": "font/woff2",
    }
)
"""What is served, by its ending. A file of another kind is not served at all."""

PACKED_ALREADY: Final = frozenset({".woff2"})

FINGERPRINT_LENGTH: Final = 12


@dataclass(frozen=True, slots=True)
class File:
    """One file as it is sent. `packed` is its content gzipped, None where that gains nothing."""

    content: bytes
    packed: bytes | None
    media_type: str
    etag: str


@dataclass(frozen=True, slots=True)
class Files:
    """Every file by its path below `static/`, and the fingerprint of all of them together."""

    by_path: Mapping[str, File]
    fingerprint: str


@cache
def files() -> Files:
    """The files that ship with Podium, read when the first is asked for."""
    return read_files(STATIC)


def read_files(directory: Path) -> Files:
    """The files of a directory. The page itself names the others with the fingerprint in their
    address, which is therefore made of those alone."""
    contents = {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.suffix in TYPES and path.is_file()
    }
    digest = sha256()
    for name, content in contents.items():
        digest.update(name.encode() + b"\0" + sha256(content).digest())
    fingerprint = digest.hexdigest()[:FINGERPRINT_LENGTH]
    return Files(
        MappingProxyType(
            {name: _file(name, content, fingerprint) for name, content in contents.items()}
        ),
        fingerprint,
    )


def _file(name: str, content: bytes, fingerprint: str) -> File:
    suffix = Path(name).suffix
    if suffix == ".html":
        content = content.replace(b'"/static/', f'"/static/v-{fingerprint}/'.encode())
    packed = None if suffix in PACKED_ALREADY else gzip.compress(content, mtime=0)
    return File(
        content=content,
        packed=packed if packed is not None and len(packed) < len(content) else None,
        media_type=TYPES[suffix],
        etag=f'"{sha256(content).hexdigest()[:32]}"',
    )
