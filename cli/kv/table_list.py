"""`gnomon kv list`: the tables of a cluster."""

from __future__ import annotations

from dataclasses import asdict

import click

from gnomon.cli.native.native_client import with_native_client
from gnomon.cli.options import native_option
from gnomon.cli.output import output_option, show_list


@click.command("list")
@native_option
@output_option
def list_tables(native: str, output: str) -> None:
    """Show all tables: their names, the places of their entries, and their partitions."""
    found = with_native_client(native, lambda client: client.tables())
    show_list([asdict(each) for each in found], ("name", "engine", "partitions"), output)
