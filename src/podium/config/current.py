"""The settings in force: from the file, else from the environment, else the embedded pool."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from podium.config.environment import discover_workers
from podium.config.files import find, read
from podium.config.resolve import resolve
from podium.config.schema import ConfigFile
from podium.config.settings import Settings
from podium.workers.catalogue import Catalogue

EMBEDDED_POOL: Final = Path(__file__).with_name("embedded.toml")
"""The pool of a machine with no key and no configuration: a pool file like any other, so that a
better one (its conductor trained further, say) is a matter of data."""


async def discover_settings(
    environment: Mapping[str, str],
    *,
    config: Path | None = None,
    pool: Path | None = None,
    directory: Path = Path(),
    today: datetime.date | None = None,
) -> Settings:
    """What Podium works with here.

    The configuration is the file named by `config`, else by `PODIUM_CONFIG`, else `podium.toml`
    in the directory, else the user's own. Every table of a `pool` file takes the place of the
    configuration's; who plans there still plans. Where neither names a worker, the workers are
    those that the environment has keys for, and without any key, the embedded ones.
    """
    files = [path for path in (find(environment, config=config, directory=directory), pool) if path]
    tables, planner = ConfigFile(), None
    for path in files:
        tables = tables.overlaid(read(path))
        planner = tables.planner or planner
    router_named = tables.mini.router is not None and pool != EMBEDDED_POOL
    sources = [str(path) for path in files]
    warnings: tuple[str, ...] = ()
    is_embedded = False
    if not tables.worker:
        found = await discover_workers(environment, Catalogue.load())
        if found.workers:
            tables = tables.model_copy(update={"worker": found.workers})
            sources.append(f"the environment ({', '.join(found.variables)})")
        else:
            tables = tables.completed(read(EMBEDDED_POOL))
            sources.append("the embedded pool")
            is_embedded = True
        warnings = found.warnings
    settings = resolve(tables, " with ".join(sources), planner=planner, today=today)
    mini = settings.mini
    if mini is not None and not router_named:
        mini = replace(mini, optional=True)
    warnings = (*settings.warnings, *warnings)
    return replace(settings, mini=mini, is_embedded=is_embedded, warnings=warnings)
