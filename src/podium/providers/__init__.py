"""Providers: one file per vendor protocol, each a worker behind the two-method protocol."""

from podium.providers.base import KNOWN_ENDPOINTS, Endpoint, KnownEndpoint, connect
from podium.providers.faulty import Faults, FaultyWorker
from podium.providers.http import Http
from podium.providers.scripted import ScriptedWorker

__all__ = [
    "KNOWN_ENDPOINTS",
    "Endpoint",
    "Faults",
    "FaultyWorker",
    "Http",
    "KnownEndpoint",
    "ScriptedWorker",
    "connect",
]
