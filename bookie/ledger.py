"""PLACEHOLDER - the contract of a ledger handle; the bookie author replaces this file, keeping these names.

class OpenMode(Flag): O_CREATE, O_APPEND, O_RDONLY
LedgerId, EntryId, Session = NewType(int)

async def open_ledger(metadata, bookies, name, digest_type=..., password=b"", mode=..., properties=None) -> Ledger

class Ledger:
    name: str; id: LedgerId; session: Session
    record: LedgerRecord            # what the metadata says, properties included (dict[str, msgpack-able])
    start_entry: EntryId            # first entry not shrunk away
    last_add_confirmed: EntryId     # -1 (or start-1) when empty
    next_entry: EntryId
    length_bytes: int               # payload bytes of this handle's appends + what was there at open
    def append(self, payload: Sequence[Buffer], done: Callable[[EntryId, LedgerError | None], None]) -> EntryId
        # pipelined, sync; done in entry order, in the Trio thread
    async def add(self, payload) -> EntryId         # append and wait
    async def read(self, first, last) -> list[bytes]            # inclusive; never above LAC
    def view(self) -> AbstractContextManager[LocalView | None]  # sync zero-copy while entries are on a local bookie
        # LocalView.payload(entry) -> memoryview, digest-checked; valid inside the block only
    async def wait_for_lac(self, entry) -> EntryId  # tail
    async def seal(self, properties=None); async def shrink(self, end_entry, force=False); async def close()
"""
