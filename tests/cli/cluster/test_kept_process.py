from __future__ import annotations

import re
from pathlib import Path

import pytest
import trio

from gnomon.cli.child import PROGRAM
from gnomon.cli.cluster import kept_process
from gnomon.cli.cluster.kept_process import KILLS_MAX, KeptProcess
from gnomon.cli.exit import Exit, Failure


async def at_once() -> bool:
    return True


def run(directory: Path, script: str) -> int:
    """Keeps a shell that adds a line to `lives` at each start; returns the number of starts."""
    lives = directory / "lives"
    process = KeptProcess("flight", (PROGRAM, "sh", "-c", f"echo >> {lives}; {script}"), directory / "log", {}, at_once)
    try:
        trio.run(process.run)
    finally:
        trio.run(process.stop)
    return lives.read_text().count("\n")


def test_a_killed_process_is_restarted_until_it_exits_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, f"test $(wc -l < {tmp_path / 'lives'}) -lt 3 && kill -SEGV $$; exit 0") == 3
    again = r"flight was killed by SIGSEGV: it is started again\nflight serves again as process \d+\n"
    ended = "flight ended, as it was asked to; the others go on\n"
    assert re.fullmatch(2 * again + ended, capsys.readouterr().err)


def test_a_process_that_exits_with_an_error_is_not_restarted(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"^flight ended with 3: no runway$") as failed:
        run(tmp_path, "echo Error: no runway >&2; exit 3")
    assert failed.value.code == Exit.UNREACHABLE


def test_a_process_that_is_killed_too_often_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"flight was killed by SIGKILL for the 6th time within 60 s.*: no fuel$"):
        run(tmp_path, "echo no fuel >&2; kill -KILL $$")
    assert (tmp_path / "lives").read_text().count("\n") == KILLS_MAX + 1


def test_old_kills_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_process, "KILLS_SECONDS", 0.0)
    assert run(tmp_path, f"test $(wc -l < {tmp_path / 'lives'}) -lt 8 && kill -KILL $$; exit 0") == 8
