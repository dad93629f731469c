"""Options that several commands have, and types that limit the values of options and arguments."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from gnomon.cli.profile.profiles import profile_of_command, profile_option
from gnomon.runtime.settings.endpoint import PORT_MAX

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "GNOMON_BOOTSTRAP_SERVER"
NATIVE_DEFAULT = "127.0.0.1:6650"
NATIVE_VARIABLE = "GNOMON_NATIVE_ADDRESS"
PASSWORD_VARIABLE = "GNOMON_LEDGER_PASSWORD"
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1


class Text(click.types.StringParamType):
    """A text of at least one character, such as a name; protocols and stores keep it as UTF-8."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """See `click.ParamType`."""
        if not value:
            self.fail("is empty: give at least one character", param, ctx)
        text = super().convert(value, param, ctx)
        if not is_utf8(text):
            self.fail(f"{text!r} is not UTF-8", param, ctx)
        return text


class TopicName(Text):
    """A valid topic name; the prefix of the default namespace may be given and is removed.

    A broker may still call a valid name an invalid topic if it conflicts with another topic.
    """

    name = "topic"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """See `click.ParamType`."""
        from gnomon.log.topic_name import InvalidTopicName, plain_name

        try:
            return plain_name(super().convert(value, param, ctx))
        except InvalidTopicName as error:
            self.fail(str(error), param, ctx)


class Seconds(click.FloatRange):
    """A number of seconds; excludes `nan`, which would pass any range."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """See `click.ParamType`."""
        seconds = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value} is no number of seconds", param, ctx)
        return seconds


SECONDS_MAX = 2_000_000.0
"""Upper limit of options: librdkafka counts milliseconds in 32 bits."""
TEXT = Text()
TOPIC = TopicName()
PORT = click.IntRange(0, PORT_MAX)
BROKER_ID = click.IntRange(0, INT32_MAX)
PARTITION = click.IntRange(0, INT32_MAX)
PARTITIONS = click.IntRange(1, 100_000)
"""The number of partitions of a topic; librdkafka allows no more."""
OFFSET = click.IntRange(0, INT64_MAX)
SHIFT = click.IntRange(-INT64_MAX, INT64_MAX)
ENTRY = click.IntRange(0, INT64_MAX)
COUNT = click.IntRange(1, INT64_MAX)


def is_utf8(text: str) -> bool:
    """Whether a text can be encoded as UTF-8: a shell may pass any bytes, and librdkafka crashes on others."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def bootstrap_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--bootstrap-server` of a command that talks to a broker."""
    return click.option(
        "--bootstrap-server",
        "bootstrap",
        type=TEXT,
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_VARIABLE,
        show_envvar=True,
        default=lambda: profile_of_command().bootstrap_server or BOOTSTRAP_DEFAULT,
        show_default=BOOTSTRAP_DEFAULT,
        help="Address of the broker; several are separated by commas.",
    )(profile_option(command))


def bootstrap_of(ctx: click.Context) -> str:
    """The address that `--bootstrap-server` has or would have, in a command line that is being completed."""
    given = ctx.params.get("bootstrap") or os.environ.get(BOOTSTRAP_VARIABLE)
    return given or profile_of_command(ctx).bootstrap_server or BOOTSTRAP_DEFAULT


def native_of(ctx: click.Context) -> str:
    """The address that `--native-address` has or would have, in a command line that is being completed."""
    given = ctx.params.get("native") or os.environ.get(NATIVE_VARIABLE)
    return given or profile_of_command(ctx).native_address or NATIVE_DEFAULT


def native_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--native-address` of a command whose question Kafka's protocol cannot express."""
    return click.option(
        "--native-address",
        "native",
        type=TEXT,
        metavar="HOST:PORT",
        envvar=NATIVE_VARIABLE,
        show_envvar=True,
        default=lambda: profile_of_command().native_address or NATIVE_DEFAULT,
        show_default=NATIVE_DEFAULT,
        help="The native port of a broker; several are separated by commas.",
    )(profile_option(command))


def durability_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--durability` of a daemon that stores data."""
    return click.option(
        "--durability", type=click.Choice(["synced", "none"]), help="`none` may lose records in a power cut."
    )(command)


def set_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--set` of a daemon."""
    return click.option(
        "--set",
        "given",
        metavar="NAME=VALUE",
        multiple=True,
        shell_complete=_setting_names,
        help="Any setting by its name; may be repeated.",
    )(command)


def _setting_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from gnomon.broker.configs.broker_configs import BROKER_CONFIGS
    from gnomon.runtime.settings.settings import declared_settings

    return [f"{name}=" for name in (*declared_settings(), *BROKER_CONFIGS) if name.startswith(incomplete)]


def metadata_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--metadata` of a process of a cluster, or of a command for one (`given_settings.cluster_options`)."""
    return click.option(
        "--metadata",
        "metadata_address",
        metavar="ADDRESS",
        help="The cluster's metadata: HOST:PORT[,HOST:PORT...] or etcd://HOST:PORT[,...]; the setting"
        " `cluster.metadata` unless given.",
    )(command)


def check_no_options(ctx: click.Context) -> None:
    """Checks that a daemon's command was given no option before a subcommand, which would ignore it.

    Raises:
        UsageError: it was.
    """
    if any(ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in ctx.params):
        raise click.UsageError(f"give the options of `{ctx.invoked_subcommand}` after its name")


def pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    """The values of a repeatable option of the form NAME=VALUE.

    Raises:
        UsageError: a text has another form.
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} {text!r}: give NAME=VALUE")
        if not is_utf8(text):
            raise click.UsageError(f"{option} {text!r} is not UTF-8")
        found[name] = value
    return found
