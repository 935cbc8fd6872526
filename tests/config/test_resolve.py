from __future__ import annotations

import pytest

from podium.config.schema import ConfigFile, ServerSettings
from podium.config.settings import resolve, resolve_worker
from podium.config.workers import WorkerTable
from podium.workers import Endpoint, Http, connect
from podium.workers.catalogue import Catalogue, CatalogueEntry
from podium.workers.hosted import HostedWorker


@pytest.mark.parametrize(
    "entry", Catalogue.load().entries, ids=lambda entry: f"{entry.provider}:{entry.id}"
)
def test_every_model_of_the_catalogue_can_be_connected_with_its_options(
    entry: CatalogueEntry,
) -> None:
    table = WorkerTable(name="a", provider=entry.provider, model=entry.id)
    settings = resolve_worker(table, Catalogue.load())
    worker = connect(settings.profile, Endpoint(api_key="key", options=settings.options), Http())
    assert isinstance(worker, HostedWorker)
    assert set(settings.options) <= set(worker.option_choices)


def test_the_table_of_the_server_is_what_the_settings_hold() -> None:
    tables = ConfigFile.model_validate(
        {
            "server": {"port": 9000, "require_keys": True, "keep_days": 30},
            "worker": [{"name": "w", "provider": "scripted", "options": {"reply": "hi"}}],
        }
    )
    server = resolve(tables, "a test").server
    assert (server.port, server.require_keys, server.keep_days) == (9000, True, 30)
    assert server.host == "127.0.0.1", "nobody else's machine is let in unless that is said"
    assert ConfigFile().server == ServerSettings()
