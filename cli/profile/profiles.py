"""The user's profiles: named sets of addresses in a TOML file of the user's config directory.

1. An address on the command line or in the environment wins over the profile's, which wins over the default.
2. The profile is that of `--profile`, else of `GNOMON_PROFILE`, else the one in use. A command that gets its addresses
   elsewhere does not read the file.
3. The file is replaced as a whole: its readers find the old or the new profiles.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import click

from gnomon.cli.exit import Exit, Failure
from gnomon.cli.names.suggestion import did_you_mean

PROFILE_VARIABLE = "GNOMON_PROFILE"
NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
"""The names that need no quotes in TOML."""
_ASKED = "gnomon.profile"
"""In a click context's `meta`: the Profile of `--profile` or of the variable."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Addresses; an empty one leaves the default in force."""

    bootstrap_server: str = ""
    native_address: str = ""
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Profiles:
    """The content of the file."""

    named: dict[str, Profile]
    used: str | None = None
    """The profile in use."""

    def find(self, name: str) -> Profile:
        """The profile of this name; raises Failure if there is none."""
        if name not in self.named:
            near = did_you_mean(name, self.named) or " `gnomon profile list` shows all"
            raise Failure(f"there is no profile {name!r}:{near}", Exit.CONFLICT)
        return self.named[name]

    def with_profile(self, name: str, profile: Profile) -> Profiles:
        """These and another one."""
        return replace(self, named={**self.named, name: profile})

    def without(self, name: str) -> Profiles:
        """All but one; if that one is in use, none is afterwards."""
        named = {other: profile for other, profile in self.named.items() if other != name}
        return Profiles(named, None if self.used == name else self.used)

    def text(self) -> str:
        """The file's content. JSON's form of these texts is valid TOML."""
        lines = [] if self.used is None else [f"use = {json.dumps(self.used)}", ""]
        for name, profile in sorted(self.named.items()):
            given = {key: value for key, value in asdict(profile).items() if value}
            lines += [f"[profiles.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in given.items()), ""]
        return "\n".join(lines)


def profiles_file() -> Path:
    """The place of the file (XDG Base Directory Specification, in which a relative directory does not count)."""
    directory = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    if not directory.is_absolute():
        directory = Path(os.path.expanduser("~/.config"))
    return directory / "gnomon" / "profiles.toml"


def load_profiles() -> Profiles:
    """The profiles of the file; none if there is no file.

    Raises:
        Failure: the file cannot be understood.
    """
    import tomllib

    path = profiles_file()
    try:
        return _decoded(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Profiles({})
    except (ValueError, TypeError) as error:
        raise Failure(f"{path} is no file of profiles ({error}): mend or remove it", Exit.USAGE) from None


def _decoded(found: dict[str, Any]) -> Profiles:
    known = {field.name for field in fields(Profile)}
    for name in found:
        if name not in ("use", "profiles"):
            raise ValueError(f"unknown key {name!r}")
    named = {}
    for name, profile in dict(found.get("profiles", {})).items():
        for key, value in dict(profile).items():
            if key not in known or not isinstance(value, str):
                raise ValueError(f"profile {name!r} has a wrong key {key!r}")
        named[name] = Profile(**profile)
    used = found.get("use")
    if used is not None and used not in named:
        raise ValueError(f"it uses a profile {used!r} that it does not have")
    return Profiles(named, used)


def save_profiles(profiles: Profiles) -> None:
    """Replaces the file."""
    path = profiles_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_suffix(".new")
    new.write_text(profiles.text(), encoding="utf-8")
    new.replace(path)


def profile_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Completes the name of a profile; a file that cannot be read has none."""
    try:
        return [name for name in sorted(load_profiles().named) if name.startswith(incomplete)]
    except (Failure, OSError):
        return []


def profile_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--profile` of a command that takes an address; the command itself does not get it.

    A command that takes several kinds of addresses gets the option once.
    """
    if any(parameter.name == "profile" for parameter in getattr(command, "__click_params__", ())):
        return command
    return click.option(
        "--profile",
        envvar=PROFILE_VARIABLE,
        show_envvar=True,
        metavar="NAME",
        expose_value=False,
        is_eager=True,  # before the addresses, whose defaults it changes
        callback=_ask_for,
        shell_complete=profile_names,
        help="Profile that has the addresses; the one in use unless given.",
    )(command)


def _ask_for(ctx: click.Context, _param: click.Parameter, name: str | None) -> None:
    if name is not None:
        ctx.meta[_ASKED] = load_profiles().find(name)


def profile_of_command(ctx: click.Context | None = None) -> Profile:
    """The profile that the command was given, else the one in use, else an empty one.

    Args:
        ctx: of the command; that of the running one unless given.
    """
    asked = (ctx or click.get_current_context()).meta.get(_ASKED)
    if isinstance(asked, Profile):
        return asked
    profiles = load_profiles()
    return Profile() if profiles.used is None else profiles.find(profiles.used)
