from __future__ import annotations

import pytest

from podium.catalogue import Catalogue, CatalogueEntry
from podium.config.resolve import worker_settings
from podium.config.schema import WorkerTable
from podium.providers import Endpoint, Http, connect
from podium.providers.hosted import HostedWorker


@pytest.mark.parametrize(
    "entry", Catalogue.load().entries, ids=lambda entry: f"{entry.provider}:{entry.id}"
)
def test_every_model_of_the_catalogue_can_be_connected_with_its_options(
    entry: CatalogueEntry,
) -> None:
    table = WorkerTable(name="a", provider=entry.provider, model=entry.id)
    settings = worker_settings(table, Catalogue.load())
    worker = connect(settings.profile, Endpoint(api_key="key", options=settings.options), Http())
    assert isinstance(worker, HostedWorker)
    assert set(settings.options) <= set(worker.settings)
