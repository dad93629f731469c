"""The reports of `gnomon pipeline run` (`cli.pipeline.run_report`), up to the start of Spark."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from gnomon.cli.exit import Exit, Failure
from gnomon.cli.pipeline.run_report import ReportPlaces, reported

pytest.importorskip("pyarrow", reason="pip install 'gnomon[lake]'")

from gnomon.spark.pipelines.progress import BatchProgress

FIRST = BatchProgress(0, "committed", 100, 5_000, 0, 2.5, 40.0, 70, 1.5, 1.0)
SECOND = FIRST._replace(batch=1, lag=0)
NOTHING = ReportPlaces(False, None, None, None)
FILE = """
name = "orders"
[source]
bootstrap = "127.0.0.1:1"
topic = "orders"
[format]
kind = "text"
[target]
kind = "parquet"
path = "table"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "orders.toml"
    path.write_text(FILE)
    return path


def test_each_batch_has_a_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with reported("orders", NOTHING) as report:
        report(FIRST)
        report(SECOND)
    found = capsys.readouterr()
    assert (found.out, found.err) == ("", f"{FIRST.line()}\n{SECOND.line()}\n")


def test_lines_of_json_are_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    with reported("orders", NOTHING._replace(json=True)) as report:
        report(FIRST)
        report(SECOND)
    found = capsys.readouterr()
    assert [json.loads(line) for line in found.out.splitlines()] == [FIRST._asdict(), SECOND._asdict()]
    assert found.err == ""


def test_on_a_terminal_each_line_replaces_the_one_before_and_fits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((40, 24)))
    with reported("orders", NOTHING) as report:
        report(FIRST)
        report(SECOND)
    expected = "".join(f"\r\x1b[2K{each.line()[:39]}" for each in (FIRST, SECOND))
    assert capsys.readouterr().err == f"{expected}\n"


def test_the_file_of_metrics_exists_from_the_start_and_has_each_batch(tmp_path: Path) -> None:
    path = tmp_path / "orders.prom"
    with reported("orders", NOTHING._replace(metrics_file=path)) as report:
        assert 'gnomon_pipeline_rows_total{pipeline="orders"} 0.0' in path.read_text()
        report(FIRST)
        report(SECOND)
    assert 'gnomon_pipeline_rows_total{pipeline="orders"} 200.0' in path.read_text()


def test_a_file_of_metrics_that_cannot_be_written_later_does_not_end_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with reported("orders", NOTHING._replace(metrics_file=folder / "orders.prom")) as report:
        (folder / "orders.prom").unlink()
        folder.rmdir()
        report(FIRST)
    assert "orders.prom: cannot be written: No such file or directory" in capsys.readouterr().err


def test_a_picture_is_drawn_at_the_end(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'gnomon[lake]'")
    path = tmp_path / "run.png"
    with reported("orders", NOTHING._replace(picture=path)) as report:
        report(FIRST)
        assert not path.exists()
    assert path.read_bytes().startswith(b"\x89PNG")


def failing_run(picture: Path, before_the_end: Callable[[], None] = lambda: None) -> None:
    with reported("orders", NOTHING._replace(picture=picture)) as report:
        report(FIRST)
        before_the_end()
        raise Failure("FENCED")


def test_a_picture_is_drawn_after_an_error(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'gnomon[lake]'")
    with pytest.raises(Failure, match="FENCED"):
        failing_run(tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_written_at_the_end_does_not_hide_the_error_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'gnomon[lake]'")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(Failure, match="FENCED"):
        failing_run(folder / "run.png", folder.rmdir)
    assert "run.png: cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "name", "text"),
    [
        ("--picture", "run.pdf", "run.pdf: expected a name that ends in .png or .svg"),
        ("--picture", "missing/run.png", "run.png: its folder does not exist: create it"),
        ("--metrics-file", "missing/x.prom", "x.prom: cannot be written: No such file or directory"),
    ],
)
def test_a_place_that_cannot_be_used_is_an_error_before_the_run(
    invoke: Callable[..., Result], file: Path, option: str, name: str, text: str
) -> None:
    if option == "--picture":
        pytest.importorskip("matplotlib", reason="pip install 'gnomon[lake]'")
    done = invoke(["pipeline", "run", str(file), option, str(file.parent / name)], b"")
    assert (done.exit_code, done.stderr.count("\n")) == (Exit.USAGE, 1)
    assert text in done.stderr


def test_a_port_in_use_is_an_error_before_the_run(invoke: Callable[..., Result], file: Path) -> None:
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        port = used.getsockname()[1]
        done = invoke(["pipeline", "run", str(file), "--metrics-port", str(port)], b"")
    assert done.exit_code == Exit.CONFLICT
    assert f"--metrics-port {port}: Address already in use: choose another port" in done.stderr


def test_a_picture_without_matplotlib_is_one_sentence_before_the_run(
    invoke: Callable[..., Result], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "gnomon.spark.pipelines.progress_picture", raising=False)
    for name in [each for each in sys.modules if each.partition(".")[0] == "matplotlib"] or ["matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    done = invoke(["pipeline", "run", str(file), "--picture", str(file.parent / "run.png")], b"")
    assert (done.exit_code, done.stderr.count("\n")) == (Exit.FAILED, 1)
    assert "the package matplotlib" in done.stderr
    assert "pip install 'gnomon[lake]'" in done.stderr
