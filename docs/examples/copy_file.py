"""Copies the lines of a file into a topic, each line once, however often the program is killed and started again.

    gnomon topic create flights --partitions 1 --set gnomon.conditional.write=true
    python copy_file.py 127.0.0.1:6650 flights.csv flights

The transaction id of each batch is the number of bytes of the file that are copied with it. So the end of the topic is
the place in the file where a later run goes on. A second copy at the same time is refused.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gnomon

BATCH_BYTES = 64 << 10
BATCHES_AHEAD = 100
"""Batches that are sent before the program waits for their answers."""


def copy_file(address: str, path: Path, topic: str) -> int:
    """Copies what the topic does not have yet; returns the number of copied bytes.

    Raises:
        CasWriteException: somebody else writes to the topic.
    """
    with gnomon.connect_blocking(address) as client, path.open("rb") as source:
        end = client.end(topic).sn
        begun = copied = max(end.transaction_id or 0, 0)
        source.seek(copied)
        with client.writer(topic) as writer:
            last, expected, batches = None, end, 0
            while lines := source.readlines(BATCH_BYTES):
                copied += sum(map(len, lines))
                last = writer.send_batch(lines, transaction_id=copied, expected=expected)
                expected, batches = gnomon.PREVIOUS, batches + 1
                if batches % BATCHES_AHEAD == 0:
                    last.sn()
            if last is not None:
                last.sn()
        return copied - begun


if __name__ == "__main__":
    print(copy_file(sys.argv[1], Path(sys.argv[2]), sys.argv[3]), "bytes copied")
