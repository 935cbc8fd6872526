"""Providers: one file per vendor protocol, each a worker behind the two-method protocol."""

from podium.workers.endpoints import KNOWN_ENDPOINTS, Endpoint, KnownEndpoint, connect
from podium.workers.faulty import Faults, FaultyWorker
from podium.workers.http import Http
from podium.workers.scripted import ScriptedWorker

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
