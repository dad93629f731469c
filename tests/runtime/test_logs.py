from __future__ import annotations

import errno
import io
import json
import os
import re
import select
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TextIO

import pytest

from gnomon.runtime.logs import SilentLogger, configure_logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_off_a_terminal_each_event_is_a_line_of_json() -> None:
    stream = io.StringIO()
    logger = configure_logs("info", "auto", stream).bind(node="a")
    logger.info("started", port=9092)
    logger.bind(topic="orders").warning("slow", seconds=1.5)
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first.pop("timestamp").endswith("Z")
    assert first == {"event": "started", "level": "info", "node": "a", "port": 9092}
    assert (second["event"], second["level"], second["node"], second["topic"]) == ("slow", "warning", "a", "orders")


def test_on_a_terminal_events_are_text_unless_json_is_asked_for() -> None:
    text, lines = Terminal(), Terminal()
    configure_logs("info", "auto", text).info("started", port=9092)
    configure_logs("info", "json", lines).info("started", port=9092)
    assert "started" in text.getvalue()
    assert not text.getvalue().startswith("{")
    assert json.loads(lines.getvalue())["port"] == 9092


FIELDS = {"port": 9092, "data": Path("/d"), "reason": "it's \u20ac 5", "none": None, "name": "a.b-c", "empty": ""}


def test_a_line_of_json_has_its_fields_in_their_order_and_then_event_level_and_time() -> None:
    stream = io.StringIO()
    configure_logs("info", "json", stream).bind(node="b").info("started", **FIELDS)
    line, time = stream.getvalue().split(', "timestamp": ')
    assert line == (
        '{"node": "b", "port": 9092, "data": "/d", "reason": "it\'s \\u20ac 5", "none": null, "name": "a.b-c", '
        '"empty": "", "event": "started", "level": "info"'
    )
    written = datetime.fromisoformat(json.loads(time.removesuffix("}\n")))
    assert abs(written - datetime.now(UTC)) < timedelta(seconds=60)


def test_a_line_of_text_has_local_time_level_event_and_its_fields_by_name() -> None:
    stream = io.StringIO()
    logger = configure_logs("info", "console", stream).bind(node="b")
    logger.warning("an_event_of_more_than_thirty_characters")
    logger.info("started", **FIELDS)
    logger.error("ended")
    lines = [line.split(" ", 1) for line in stream.getvalue().splitlines()]
    assert [line for _, line in lines] == [
        "[warning  ] an_event_of_more_than_thirty_characters node=b",
        "[info     ] started                        data=PosixPath('/d') empty= name=a.b-c node=b none=None port=9092 "
        'reason="it\'s \u20ac 5"',
        "[error    ] ended                          node=b",
    ]
    for time, _ in lines:
        assert abs(datetime.fromisoformat(time).astimezone() - datetime.now(UTC)) < timedelta(seconds=60)


@pytest.mark.parametrize("text", ["\x1b[31mred", "a\x0bb", "a\x85b", "a\u2028b", "a\tb", "a\nb", "a\x7fb", "a\u202eb"])
def test_no_text_of_a_peer_moves_colours_or_breaks_a_line_of_text(text: str) -> None:
    stream = io.StringIO()
    configure_logs("info", "console", stream).info("refused", reason=text)
    line = stream.getvalue().removesuffix("\n")
    assert line.isprintable()
    assert line.endswith(f" reason={text!r}")


def test_text_on_a_terminal_is_coloured() -> None:
    stream = Terminal()
    logger = configure_logs("debug", "console", stream)
    for level in (logger.debug, logger.info, logger.warning, logger.error):
        level("x", a=1)
    event = "\x1b[1mx" + 29 * " " + "\x1b[0m"
    field = "\x1b[36ma\x1b[0m=\x1b[35m1\x1b[0m"
    named = ((32, "debug"), (32, "info"), (33, "warning"), (31, "error"))
    lines = stream.getvalue().splitlines()
    assert [re.sub(r"\x1b\[2m\S+\x1b\[0m ", "", line) for line in lines] == [
        f"[\x1b[{colour}m\x1b[1m{level:9}\x1b[0m] {event} {field}" for colour, level in named
    ]


def test_events_below_the_level_are_not_written() -> None:
    stream = io.StringIO()
    logger = configure_logs("warning", "json", stream)
    logger.debug("a")
    logger.info("b")
    logger.warning("c")
    logger.error("d")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["c", "d"]


def test_an_exception_is_logged_as_an_error_with_its_traceback() -> None:
    stream = io.StringIO()
    try:
        {}["missing"]
    except KeyError:
        configure_logs("info", "json", stream).exception("failed")
    line = json.loads(stream.getvalue())
    assert line["level"] == "error"
    assert line["exception"].startswith("Traceback (most recent call last):\n")
    assert line["exception"].endswith("\nKeyError: 'missing'")


def test_the_traceback_of_an_exception_is_below_its_line_of_text() -> None:
    stream = io.StringIO()
    try:
        {}["missing"]
    except KeyError:
        configure_logs("info", "console", stream).exception("failed", port=1)
    first, second, *_, last = stream.getvalue().splitlines()
    assert first.endswith("[error    ] failed                         port=1")
    assert (second, last) == ("Traceback (most recent call last):", "KeyError: 'missing'")


def test_an_exception_that_is_no_longer_handled_is_logged_without_a_traceback() -> None:
    stream = io.StringIO()
    configure_logs("info", "json", stream).exception("failed")
    assert set(json.loads(stream.getvalue())) == {"event", "level", "timestamp"}


def test_two_loggers_of_one_process_do_not_share_fields_or_streams() -> None:
    one, two = io.StringIO(), io.StringIO()
    first, second = configure_logs("info", "json", one).bind(node="a"), configure_logs("info", "json", two)
    first.info("x")
    second.info("y")
    assert json.loads(one.getvalue())["node"] == "a"
    assert "node" not in json.loads(two.getvalue())


def test_a_silent_logger_accepts_every_event() -> None:
    logger = SilentLogger().bind(node="a")
    logger.info("x", y=1)
    logger.exception("z")


class FullAtTimes(io.StringIO):
    """A file whose writes fail while it has a `failure`, as on a full disk or in a broken pipe."""

    failure: OSError | None = None

    def flush(self) -> None:
        if self.failure is not None:
            self.seek(0)
            self.truncate()
            raise self.failure


def test_a_line_that_cannot_be_written_is_dropped_and_counted_and_the_next_one_is_tried() -> None:
    stream = FullAtTimes()
    logger = configure_logs("info", "json", stream)
    bound = logger.bind(node="a")
    for failure in (OSError(errno.ENOSPC, "No space left on device"), BrokenPipeError(errno.EPIPE, "Broken pipe")):
        stream.failure = failure
        bound.info("dropped")
    stream.failure = None
    bound.info("written")
    assert json.loads(stream.getvalue())["event"] == "written"
    assert logger.lines_dropped == 2


def test_a_pipe_that_nobody_reads_delays_nothing_and_its_next_reader_gets_whole_lines() -> None:
    receiving, sending = os.pipe()
    with open(receiving, encoding="utf-8") as reader, open(sending, "w", encoding="utf-8") as stream:
        logger = configure_logs("info", "json", stream)
        written = 0
        while not logger.lines_dropped:
            logger.info("noted", number=written, padding="\u20ac" * 3000)  # longer than what a pipe takes at once
            written += 1
        logger.info("dropped too")
        dropped = logger.lines_dropped
        assert dropped == 2
        seen = read_without_waiting(reader)
        logger.info("last")
        lines = (seen + read_without_waiting(reader)).splitlines()
    assert [json.loads(line)["number"] for line in lines[: written - 1]] == list(range(written - 1))
    assert json.loads(lines[-1])["event"] == "last"
    assert len(lines) <= written + 1, "only the line that was cut is there besides"


def read_without_waiting(reader: TextIO) -> str:
    found = b""
    while select.select([reader], [], [], 0)[0]:
        found += os.read(reader.fileno(), 1 << 20)
    return found.decode()


def test_lines_are_rendered_by_the_standard_library_alone() -> None:
    program = (
        "import sys, threading\nfrom gnomon.runtime.logs import configure_logs\nbefore = set(sys.modules)\n"
        "for format in ('json', 'console'):\n"
        "    log = configure_logs('info', format, sys.stderr)\n    log.info('x', a=1)\n"
        "    try: {}['missing']\n    except KeyError: log.exception('y')\n"
        "loaded = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "assert loaded <= sys.stdlib_module_names and 'asyncio' not in loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
