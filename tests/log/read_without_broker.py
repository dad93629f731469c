"""Prints the records of a partition, read from the bookies only. Arguments: metadata address, topic, partition."""

import sys
from contextlib import aclosing

import trio

from gnomon import connect_ledgers, open_partition
from gnomon.wire.kafka.records import iterate_records


async def main(metadata: str, topic: str, partition: str) -> None:
    async with connect_ledgers(metadata) as ledgers:
        reader = await open_partition(ledgers.metadata, ledgers.bookies, topic, int(partition))
        async with aclosing(reader.batches()) as batches:
            async for batch in batches:
                for record in iterate_records(memoryview(batch.records), 1 << 24):
                    print(batch.base_offset + record.offset_delta, (record.value or b"").decode())


trio.run(main, *sys.argv[1:])
