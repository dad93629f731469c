"""`gnomon profile`: creates, lists, chooses, shows and deletes the user's profiles."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import click

from gnomon.cli.exit import Exit, Failure
from gnomon.cli.names.suggestion import CommandGroup
from gnomon.cli.output import note, output_option, show_list, show_record
from gnomon.cli.profile.profiles import (
    NAME,
    PROFILE_VARIABLE,
    Profile,
    Profiles,
    load_profiles,
    profile_names,
    profiles_file,
    save_profiles,
)


@click.group(cls=CommandGroup)
def profile() -> None:
    """Keep named sets of addresses, and choose the one that commands use."""


def _new_name(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    if not NAME.fullmatch(text):
        raise click.BadParameter(f"{text!r} has other characters than letters, digits, - and _, or more than 100")
    return text


def _address(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    if text == "":
        raise click.BadParameter("is empty: give an address")
    if text is not None and not text.isprintable():
        raise click.BadParameter(f"{text!r} is no address")
    return text


@profile.command()
@click.argument("name", callback=_new_name)
@click.option(
    "--bootstrap-server", "bootstrap_server", callback=_address, metavar="HOST:PORT", help="Brokers, for Kafka."
)
@click.option(
    "--native-address", "native_address", callback=_address, metavar="HOST:PORT", help="Brokers, native ports."
)
@click.option("--metadata", callback=_address, metavar="ADDRESS", help="The metadata of the cluster.")
def create(name: str, **given: str | None) -> None:
    """Create the profile NAME; `gnomon profile use` chooses it."""
    addresses = {kind: address for kind, address in given.items() if address is not None}
    if not addresses:
        raise click.UsageError("a profile has addresses: give --bootstrap-server, --native-address or --metadata")
    profiles = load_profiles()
    if name in profiles.named:
        raise Failure(f"there is a profile {name!r}: delete it first, or choose another name", Exit.CONFLICT)
    save_profiles(profiles.with_profile(name, Profile(**addresses)))
    note(f"created profile {name!r} in {profiles_file()}: `gnomon profile use {name}` chooses it")


@profile.command("list")
@output_option
def list_profiles(output: str) -> None:
    """List all profiles."""
    profiles = load_profiles()
    rows = [{**_row(name, found), "in_use": name == profiles.used} for name, found in sorted(profiles.named.items())]
    show_list(rows, ("profile", "bootstrap_server", "native_address", "metadata", "in_use"), output)


@profile.command()
@click.argument("name", required=False, shell_complete=profile_names)
@click.option("--none", is_flag=True, help="Use no profile.")
def use(name: str | None, none: bool) -> None:
    """Let commands use the addresses of the profile NAME, unless they are given others."""
    if (name is None) is not none:
        raise click.UsageError("give the NAME of a profile, or --none")
    profiles = load_profiles()
    if name is not None:
        profiles.find(name)
    save_profiles(Profiles(profiles.named, name))
    note("no profile is in use" if name is None else f"profile {name!r} is in use")


@profile.command()
@click.argument("name", required=False, shell_complete=profile_names)
@output_option
def show(name: str | None, output: str) -> None:
    """Show the profile NAME, or the one that commands use."""
    profiles = load_profiles()
    name = name or os.environ.get(PROFILE_VARIABLE) or profiles.used
    if name is None:
        raise Failure("no profile is in use: `gnomon profile use NAME` chooses one", Exit.CONFLICT)
    show_record(_row(name, profiles.find(name)), output)


@profile.command()
@click.argument("name", shell_complete=profile_names)
def delete(name: str) -> None:
    """Delete the profile NAME."""
    profiles = load_profiles()
    profiles.find(name)
    save_profiles(profiles.without(name))
    note(f"deleted profile {name!r}" + (", which was in use" if profiles.used == name else ""))


def _row(name: str, found: Profile) -> dict[str, Any]:
    return {"profile": name, **{kind: address or None for kind, address in asdict(found).items()}}
