"""A configuration service: settings that services follow, and that administrators change one at a time.

    gnomon kv create settings
    gnomon kv put settings colour green
    python followed_settings.py 127.0.0.1:6650 settings seen.json

A service loads the present settings with its watch, and then follows every change. Its file has the settings and the
revision after the last change, so a service that starts again goes on there: no change is left out, none comes twice.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import gnomon


class FollowedSettings:
    """The settings as one service has seen them."""

    def __init__(self, path: Path) -> None:
        """Begins with the file of an earlier run, if there is one."""
        self._path = path
        self.values: dict[str, str] = {}
        self._next: int | None = None
        """The revision after the last change; None before the first one, when the present settings are loaded."""
        if path.exists():
            self._next, self.values = json.loads(path.read_text())

    def follow(self, table: gnomon.BlockingTable) -> Iterator[gnomon.TableEvent]:
        """Every setting and every change that this service has not seen, once it counts; without an end."""
        for event in table.watch(revision=self._next, initial=True):
            if event.value is None:
                self.values.pop(event.key.decode(), None)
            else:
                self.values[event.key.decode()] = event.value.decode()
            if event.kind != "current":
                self._next = event.revision + 1
                self._save()
            yield event

    def _save(self) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps([self._next, self.values]))
        new.replace(self._path)


def change_setting(table: gnomon.BlockingTable, key: bytes, change: Callable[[bytes | None], bytes]) -> int:
    """Changes one setting, and returns its new revision.

    Args:
        change: returns the new value for the present one, which is None for a setting that is not there.

    Raises:
        CompareFailed: somebody else has changed it meanwhile, and nothing is written: look at it again.
    """
    entry = table.get(key)
    if entry is None:
        return table.put(key, change(None), revision=-1)
    return table.put(key, change(entry.value), revision=entry.revision)


if __name__ == "__main__":
    with gnomon.connect_blocking(sys.argv[1]) as client:
        settings = FollowedSettings(Path(sys.argv[3]))
        for seen in settings.follow(client.table(sys.argv[2])):
            print(seen.kind, seen.key.decode(), seen.value and seen.value.decode(), flush=True)
