"""`gnomon pipeline`: tables that follow topics, files that go into topics, each described by one file, and audits."""

from __future__ import annotations

import click

from gnomon.cli.names.suggestion import CommandGroup
from gnomon.cli.pipeline.audit import audit
from gnomon.cli.pipeline.check import check
from gnomon.cli.pipeline.init import init
from gnomon.cli.pipeline.maintain import maintain
from gnomon.cli.pipeline.replay import replay
from gnomon.cli.pipeline.run import run
from gnomon.cli.pipeline.status import reset, status


@click.group(cls=CommandGroup)
def pipeline() -> None:
    """Run and check pipelines between topics, tables and files, and audit topics."""


for command in (init, check, run, status, reset, replay, maintain, audit):
    pipeline.add_command(command)
