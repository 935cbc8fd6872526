"""The tables `[store]` and `[server]`: where runs are kept, and how they are served.

What each comes to is `settings`; the server's own limits and doors are `podium.server`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from podium.config.values import Count, Days, Name, Seconds, anchored
from podium.workers.catalogue import Table

LogForm = Literal["text", "json"]


class StoreTable(Table):
    """Where runs are kept."""

    path: Name | None = Field(
        default=None,
        description="an SQLite file, relative to this one; when left out, in the user's data "
        "directory",
    )
    url: Name | None = Field(default=None, description="a database address, instead of `path`")
    lease_seconds: Seconds = Field(
        default=60.0,
        description="a run whose process has not said for so long that it is at work may be taken "
        "over by another; it says so four times as often. The same for all that share a store",
    )

    def anchored(self, directory: Path) -> StoreTable:
        """This table with its file counted from that directory."""
        if self.path is None:
            return self
        return self.model_copy(update={"path": anchored(self.path, directory)})


class ServerTable(Table):
    """What `podium serve` does; its options on the command line come before these."""

    host: Name = Field(
        default="127.0.0.1", description="the address to listen on; `0.0.0.0`: on every one"
    )
    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=7755, description="the port; 0: any that is free"
    )
    workers: Count = Field(default=1, description="processes that answer, on the same port")
    keys: bool = Field(
        default=False, description="only who has a key is served; `podium keys` makes them"
    )
    hosts: Annotated[tuple[Name, ...], Field(strict=False)] = Field(
        default=(),
        description="names that this server has elsewhere, as behind a proxy: only needed where no "
        "keys are asked for, and for pages of other hosts that may use it",
    )
    in_flight: Count = Field(
        default=1000, description="requests that are answered at the same time, in each process"
    )
    queue: Annotated[int, Field(ge=0)] = Field(
        default=1000, description="requests that wait for their turn; more are refused"
    )
    body_megabytes: Count = Field(default=32, description="the largest body that is read")
    keep_alive_seconds: Seconds = Field(
        default=15.0, description="how long a stream may be silent before a sign of life is sent"
    )
    drain_seconds: Seconds = Field(
        default=30.0, description="how long runs may go on when the server is to stop"
    )
    recover: bool = Field(
        default=True,
        description="go on with runs that were cut off with their process, be it this server's "
        "before it was started again or another one's on the same store",
    )
    keep_days: Days | None = Field(
        default=None,
        description="runs older than that are deleted; when left out, they are kept",
    )
    log: LogForm | None = Field(
        default=None,
        description="`text`, to read, or `json`, for programs; when left out, text on a terminal "
        "and JSON elsewhere",
    )
    log_prompts: bool = Field(
        default=False, description="the log holds questions and answers as well"
    )
    private_images: bool = Field(
        default=False,
        description="clients may send addresses of images on private networks, which workers of "
        "your own then look up from where they run",
    )
    traces: bool = Field(
        default=False,
        description="send OpenTelemetry traces (extra `otel`), where `OTEL_EXPORTER_OTLP_ENDPOINT` "
        "says",
    )
    learning: Annotated[tuple[Name, ...], Field(strict=False)] = Field(
        default=(),
        description="directories of trainings and evaluations, relative to this file, that the "
        "page Learning shows, with those in them",
    )

    def anchored(self, directory: Path) -> ServerTable:
        """This table with its directories counted from that one."""
        learning = tuple(anchored(path, directory) for path in self.learning)
        return self.model_copy(update={"learning": learning})
