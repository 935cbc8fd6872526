"""The catalogue: what Podium knows of models by name. The data is in `models.toml`."""

from podium.catalogue.catalogue import Catalogue
from podium.catalogue.entries import CatalogueEntry, PriceTable

__all__ = ["Catalogue", "CatalogueEntry", "PriceTable"]
