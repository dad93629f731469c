"""`gnomon doctor`: checks this machine, a data directory and a broker as an operator would."""

from __future__ import annotations

from pathlib import Path

import click

from gnomon.cli.doctor import host_checks
from gnomon.cli.doctor.check import Check, CheckStatus
from gnomon.cli.doctor.cluster_checks import check_cluster
from gnomon.cli.doctor.ledger_checks import check_ledgers, check_pages
from gnomon.cli.doctor.subscription_checks import check_subscriptions
from gnomon.cli.exit import Exit, Failure
from gnomon.cli.given_settings import config_option, data_dir_option, read_settings
from gnomon.cli.kafka.kafka_client import ANSWER_SECONDS, connect, kafka_errors
from gnomon.cli.options import BOOTSTRAP_DEFAULT, BOOTSTRAP_VARIABLE, NATIVE_DEFAULT, NATIVE_VARIABLE, TEXT
from gnomon.cli.output import output_option, show_list
from gnomon.runtime.disk.data_directory import FORMAT_FILE, DirectoryKind, format_and_command
from gnomon.runtime.settings.settings import Settings
from gnomon.runtime.world import Durability


@click.command()
@data_dir_option
@click.option(
    "--bootstrap-server",
    "bootstrap",
    type=TEXT,
    metavar="HOST:PORT",
    envvar=BOOTSTRAP_VARIABLE,
    show_envvar=True,
    help=f"A broker that has to answer; without it, a missing answer at {BOOTSTRAP_DEFAULT} is no failure.",
)
@click.option(
    "--native-address",
    "native",
    type=TEXT,
    metavar="HOST:PORT",
    envvar=NATIVE_VARIABLE,
    show_envvar=True,
    help=f"The native port of a broker that has to answer; without it, one at {NATIVE_DEFAULT} is asked, too.",
)
@click.option(
    "--deep",
    is_flag=True,
    help="Read every page of the stores, and check the digest of every entry; ask a cluster's bookies for every "
    "entry, and for ledgers that have no record.",
)
@config_option
@output_option
def doctor(
    data_dir: str | None,
    bootstrap: str | None,
    native: str | None,
    deep: bool,
    config_file: Path | None,
    output: str,
) -> None:
    """Check this machine, a data directory, a cluster and a broker, and say what to do.

    Changes nothing that is stored; while it reads ledgers, no broker can start on the directory. Ends with 1 if a check
    fails.
    """
    settings = read_settings(config_file, data_dir=data_dir).settings
    checks = [
        *host_checks.software(),
        host_checks.open_files(settings.broker.connections_max),
        _durability(settings),
        *host_checks.directory(settings),
        *_ledgers(settings, deep),
        *check_cluster(settings, deep),
        _broker(bootstrap),
        *check_subscriptions(native),
    ]
    rows = [
        {"check": check.name, "status": check.status.value, "found": check.found, "advice": check.advice}
        for check in checks
    ]
    show_list(rows, ("check", "status", "found", "advice"), output)
    failed = [check.name for check in checks if check.status is CheckStatus.FAIL]
    if failed:
        raise Failure(f"{len(failed)} of {len(checks)} checks failed: {', '.join(failed)}", Exit.FAILED)


def _durability(settings: Settings) -> Check:
    value = settings.bookie.durability
    if value is Durability.SYNCED:
        return Check("durability", CheckStatus.OK, value.value)
    return Check(
        "durability",
        CheckStatus.WARN,
        f"{value.value}: a power cut may lose acknowledged records",
        "set bookie.durability to synced, unless it is for tests",
    )


def _broker(bootstrap: str | None) -> Check:
    """Whether a Kafka broker answers; fails only if one was asked for."""
    where = bootstrap or BOOTSTRAP_DEFAULT
    try:
        admin = connect(where)
        with kafka_errors(f"ask the broker at {where}"):
            found = admin.list_topics(timeout=ANSWER_SECONDS)
    except Failure as failure:
        status = CheckStatus.WARN if bootstrap is None else CheckStatus.FAIL
        return Check("broker", status, str(failure))
    return Check("broker", CheckStatus.OK, f"{where} answers: {len(found.brokers)} brokers, {len(found.topics)} topics")


def _ledgers(settings: Settings, deep: bool) -> list[Check]:
    """Whether the ledgers can be opened and, if `deep`, all of their entries read."""

    try:
        _, command = format_and_command((settings.data_dir / FORMAT_FILE).read_bytes())
    except FileNotFoundError:
        return []
    except OSError as error:
        return [host_checks.unreadable("ledgers", error)]
    if command != DirectoryKind.STANDALONE.value and deep and host_checks.holder(settings.data_dir) is None:
        return check_pages(settings)
    if command != DirectoryKind.STANDALONE.value:
        where = "not looked at: this directory has its part of a cluster's alone"
        return [
            Check("ledgers", CheckStatus.OK, where, "`gnomon ledger list --metadata HOST:PORT` shows the cluster's")
        ]
    if host_checks.holder(settings.data_dir) is not None:
        status = CheckStatus.WARN if deep else CheckStatus.OK
        return [Check("ledgers", status, "not looked at: the directory is in use", "stop the broker to check them")]
    return check_ledgers(settings, deep)
