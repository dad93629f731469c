from __future__ import annotations

from pathlib import Path

import click
import pytest

from gnomon.cli.exit import Exit, Failure
from gnomon.cli.profile.profiles import Profile, Profiles, load_profiles, profiles_file, save_profiles


@pytest.fixture(autouse=True)
def config_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def test_profiles_come_back_as_they_were_saved() -> None:
    odd = Profile('a"\\b:1', "ü:2", "etcd://h:3")
    for profiles in (Profiles({}), Profiles({"one": odd, "two-2": Profile(metadata="m:1")}, "one")):
        save_profiles(profiles)
        assert load_profiles() == profiles


def test_the_file_is_in_the_config_directory_of_the_user(monkeypatch: pytest.MonkeyPatch, config_home: Path) -> None:
    assert profiles_file() == config_home / "gnomon" / "profiles.toml"
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CONFIG_HOME", value)
        monkeypatch.setenv("HOME", "/home/somebody")
        assert profiles_file() == Path("/home/somebody/.config/gnomon/profiles.toml")


def test_the_file_is_replaced_as_a_whole() -> None:
    """Invariant 3."""
    save_profiles(Profiles({"one": Profile("a:1")}))
    with profiles_file().open() as old:
        save_profiles(Profiles({"two": Profile("b:2")}))
        assert "one" in old.read()
    assert [path.name for path in profiles_file().parent.iterdir()] == ["profiles.toml"]


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "other = 1",
        "profiles = 3",
        "[profiles.one]\nbootstrap = 'a:1'",
        "[profiles.one]\nmetadata = 7",
        "[profiles]\none = 'a'",
        "use = 'one'",
        "use = 7",
        b"\xff",
    ],
)
def test_a_file_of_something_else_is_named_in_the_error(text: str | bytes) -> None:
    profiles_file().parent.mkdir()
    profiles_file().write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(Failure, match=r"profiles\.toml is no file of profiles") as failed:
        load_profiles()
    assert failed.value.code == Exit.USAGE


def test_deleting_the_profile_in_use_leaves_none_in_use() -> None:
    profiles = Profiles({"one": Profile("a:1"), "two": Profile("b:1")}, "one")
    assert profiles.without("one") == Profiles({"two": Profile("b:1")})
    assert profiles.without("two").used == "one"


def test_a_misspelt_profile_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(Failure, match="there is no profile 'prd': Did you mean 'prod'"):
        Profiles({"prod": Profile("a:1")}).find("prd")
    with pytest.raises(Failure, match="`gnomon profile list` shows all"):
        Profiles({}).find("prd")


def test_a_command_that_takes_two_kinds_of_addresses_has_one_option_for_the_profile() -> None:
    from gnomon.cli.options import bootstrap_option, native_option

    command = click.command()(bootstrap_option(native_option(lambda **_given: None)))
    assert [parameter.name for parameter in command.params].count("profile") == 1
