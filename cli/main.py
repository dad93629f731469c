"""The entry point; subcommands are imported when they are used, so that `--help` is quick."""

from __future__ import annotations

import click


@click.group()
def main() -> None:
    """A Kafka-compatible log broker."""


@main.command()
@click.option("--data-dir")
@click.option("--kafka-port", type=int)
@click.option("--admin-port", type=int)
@click.option("--durability", type=click.Choice(["synced", "none"]))
def standalone(data_dir: str | None, kafka_port: int | None, admin_port: int | None, durability: str | None) -> None:
    """Runs metadata service, bookie and broker in one process."""
    import os

    from gnomon.broker.broker_configs import BROKER_CONFIGS, check_broker_config
    from gnomon.cli.standalone import NotStarted, serve
    from gnomon.runtime.settings import load_settings

    flags = {
        "data_dir": data_dir,
        "broker.kafka_port": kafka_port,
        "broker.admin_port": admin_port,
        "bookie.durability": durability,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    loaded = load_settings(None, os.environ, given, kafka_names=list(BROKER_CONFIGS), kafka_check=check_broker_config)
    try:
        serve(loaded.settings)
    except NotStarted as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
