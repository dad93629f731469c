"""Builds the requests to etcd's JSON gateway and interprets its answers. Pure.

1. In etcd every key begins with the store's prefix; a request never names a key outside the prefix.
2. One operation of a transaction is one operation of etcd, so etcd's limit for operations applies to ours unchanged.
3. A watch misses no event. After a compaction at revision C, etcd would serve a watch from C without the deletions of C
   (etcd issues 18089 and 19179). So a watch from revision r asks etcd for r - 1 and drops that revision: etcd then
   refuses a watch from C as compacted.
4. The events of one revision become one batch, even if they arrive in several messages.
5. An error of etcd becomes InvalidRequest or LeaseNotFound only if etcd certainly applied nothing. If a write may have
   taken effect, the error becomes MetadataUnavailable.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, TypeAlias

from gnomon.metadata.client import (
    Compare,
    Delete,
    DeletePrefix,
    Event,
    Get,
    HistoryCompacted,
    InvalidRequest,
    KeyField,
    KeyValue,
    LeaseId,
    LeaseNotFound,
    MetadataError,
    MetadataUnavailable,
    Operation,
    Put,
    Revision,
    TxnOutcome,
    WatchBatch,
)
from gnomon.metadata.request import Txn

Json: TypeAlias = dict[str, Any]

# gRPC codes of etcd's refusals.
_INVALID_ARGUMENT, _PERMISSION_DENIED, _RESOURCE_EXHAUSTED, _OUT_OF_RANGE, _UNAUTHENTICATED = 3, 7, 8, 11, 16

_TARGETS = {
    KeyField.VERSION: ("VERSION", "version"),
    KeyField.CREATE_REVISION: ("CREATE", "create_revision"),
    KeyField.MOD_REVISION: ("MOD", "mod_revision"),
    KeyField.VALUE: ("VALUE", "value"),
}


class RevisionCompacted(MetadataError):
    """etcd no longer has the named revision; a reader lists again, and a compaction has nothing to do."""


class Keyspace:
    """The keys below one prefix of an etcd that may contain others as well."""

    def __init__(self, prefix: str) -> None:
        """`prefix` ends with a slash, so that one cluster's prefix is not the beginning of another's by accident.

        Raises:
            InvalidRequest: it does not.
        """
        if len(prefix) < 2 or not prefix.endswith("/"):
            raise InvalidRequest(
                f"etcd prefix {prefix!r} is refused: use a name that ends with '/', as in gnomon/prod/"
            )
        self.prefix = prefix
        self._prefix_bytes_count = len(_utf8(prefix))

    def key(self, key: str) -> str:
        """A key in etcd's form."""
        return _base64(_utf8(self.prefix + key))

    def below(self, prefix: str, after: str | None = None) -> Json:
        """A range of every key that begins with `prefix`; with `after`, only those after that key."""
        first = _utf8(self.prefix + prefix)
        end = first[:-1] + bytes([first[-1] + 1])  # UTF-8 has no byte 255
        start = first if after is None else _utf8(self.prefix + after) + b"\0"
        return {"key": _base64(start), "range_end": _base64(end)}

    def question(self) -> Json:
        """A range that returns nothing but the revision."""
        return {"key": self.key(""), "count_only": True}

    def item(self, found: Json) -> KeyValue:
        """A key of an answer."""
        lease = int(found.get("lease", 0))
        return KeyValue(
            b64decode(found["key"])[self._prefix_bytes_count :].decode(),
            b64decode(found.get("value", "")),
            Revision(int(found["create_revision"])),
            Revision(int(found["mod_revision"])),
            int(found["version"]),
            LeaseId(lease) if lease else None,
        )

    def items(self, answer: Json) -> list[KeyValue]:
        """The keys of an answer to a range."""
        return [self.item(found) for found in answer.get("kvs", ())]

    def txn_body(self, request: Txn) -> Json:
        """A transaction in etcd's form.

        etcd evaluates a comparison of an absent key's value as false, also with b"". So the condition 'the value is b""
        or the key is absent' becomes the negation of 'the value is not b""', with swapped and nested branches.
        """
        if not request.then and not request.otherwise:
            # etcd answers a transaction without operations from the member's own state, which may lag behind.
            request = Txn(request.compare, (Get(""),), (Get(""),))
        otherwise = [self._operation(operation) for operation in request.otherwise]
        branch = [self._operation(operation) for operation in request.then]
        plain, empty = _split(request.compare)
        for compare in reversed(empty):
            differs = self._compare(compare) | {"result": "NOT_EQUAL"}
            branch = [{"request_txn": {"compare": [differs], "success": otherwise, "failure": branch}}]
        return {"compare": [self._compare(compare) for compare in plain], "success": branch, "failure": otherwise}

    def txn_result(self, request: Txn, answer: Json) -> TxnOutcome:
        """The result of the transaction of `txn_body`."""
        revision = revision_of(answer)
        succeeded = answer.get("succeeded", False)
        _, empty = _split(request.compare)
        for _ in empty if succeeded else ():
            answer = answer["responses"][0]["response_txn"]
            succeeded = not answer.get("succeeded", False)
            if not succeeded:
                break
        branch = request.then if succeeded else request.otherwise
        responses = answer.get("responses", ())
        results = [self._result(*pair, revision) for pair in zip(branch, responses, strict=False)]
        assert len(results) == len(branch), "invariant 2: an operation has no answer"
        return TxnOutcome(succeeded, revision, tuple(results))

    def watch_body(self, prefix: str, from_revision: Revision) -> Json:
        """A watch from `from_revision` on: see invariant 3; etcd's revision 1 is empty."""
        start = max(from_revision - 1, 1)
        options = {"start_revision": str(start), "fragment": True, "progress_notify": True}
        return {"create_request": self.below(prefix) | options}

    def _compare(self, compare: Compare) -> Json:
        target, name = _TARGETS[compare.field]
        value = _base64(compare.value) if isinstance(compare.value, bytes) else str(compare.value)
        return {"key": self.key(compare.key), "target": target, "result": "EQUAL", name: value}

    def _operation(self, operation: Operation) -> Json:
        match operation:
            case Get(key):
                return {"request_range": {"key": self.key(key)}}
            case Put(key, value, lease):
                # The previous value gives the new version; a Get after the Put would be a second operation.
                put = {"key": self.key(key), "value": _base64(value), "lease": str(lease or 0), "prev_kv": True}
                return {"request_put": put}
            case Delete(key):
                return {"request_delete_range": {"key": self.key(key)}}
            case DeletePrefix(prefix):
                return {"request_delete_range": self.below(prefix)}

    def _result(self, operation: Operation, response: Json, revision: Revision) -> KeyValue | int | None:
        match operation:
            case Get():
                found = self.items(response["response_range"])
                return found[0] if found else None
            case Put(key, value, lease):
                before = response["response_put"].get("prev_kv")
                if before is None:
                    return KeyValue(key, value, revision, revision, 1, lease)
                created, version = Revision(int(before["create_revision"])), int(before["version"]) + 1
                return KeyValue(key, value, created, revision, version, lease)
            case Delete() | DeletePrefix():
                return int(response["response_delete_range"].get("deleted", 0))


class WatchMessages:
    """Turns the messages of a watch into batches; `position` is the first revision not yet delivered."""

    def __init__(self, keyspace: Keyspace, position: Revision) -> None:
        self._keyspace = keyspace
        self.position = position
        self._held: list[Json] = []

    def reconnected(self) -> None:
        """Prepares for a new connection, whose messages start at `position`."""
        self._held = []

    def receive(self, message: Json) -> list[WatchBatch]:
        """The batches that are complete with this message.

        Raises:
            HistoryCompacted: etcd ended the watch, because it no longer has the revision at `position`.
            MetadataUnavailable: etcd ended it for another reason.
        """
        if "compact_revision" in message:
            raise HistoryCompacted(self.position, Revision(int(message["compact_revision"]) + 1))
        if message.get("canceled"):
            raise MetadataUnavailable(f"etcd ended the watch: {message.get('cancel_reason', 'it gave no reason')}")
        events = self._held + message.get("events", [])
        self._held = []
        if not events and not message.get("created"):
            # A progress report: etcd sends it only to a watch that has received everything up to its revision.
            self.position = max(self.position, Revision(revision_of(message) + 1))
        if events and message.get("fragment"):
            last = _event_revision(events[-1])
            self._held = [event for event in events if _event_revision(event) == last]
            events = events[: -len(self._held)]
        return self._batches(events)

    def _batches(self, events: Sequence[Json]) -> list[WatchBatch]:
        grouped: dict[Revision, list[Event]] = {}
        for event in events:
            revision = _event_revision(event)
            if revision >= self.position:
                grouped.setdefault(revision, []).append(self._event(event))
        for revision in grouped:
            self.position = Revision(revision + 1)
        return [WatchBatch(revision, tuple(found)) for revision, found in grouped.items()]

    def _event(self, event: Json) -> Event:
        if event.get("type") != "DELETE":
            item = self._keyspace.item(event["kv"])
            return Event(item.key, item)
        deleted = event["kv"] | {"create_revision": "0", "version": "0"}
        return Event(self._keyspace.item(deleted).key, None)


def revision_of(answer: Json) -> Revision:
    """etcd's revision in the header of an answer."""
    return Revision(int(answer["header"]["revision"]))


def error_of(answer: Json, endpoint: str) -> MetadataError:
    """The error for an error answer of etcd; MetadataUnavailable if something may have been applied.

    Texts and codes: api/v3rpc/rpctypes/error.go of etcd.
    """
    code, text = answer.get("code", answer.get("grpc_code")), str(answer.get("message", answer))
    if "lease not found" in text:
        return LeaseNotFound("the lease expired or was revoked, and its keys were deleted with it: ask for a new one")
    if "revision has been compacted" in text:
        return RevisionCompacted(text)
    if code in (_PERMISSION_DENIED, _UNAUTHENTICATED) or "user name is empty" in text:
        return MetadataUnavailable(f"etcd at {endpoint} asks for authentication ({text}), which gnomon does not offer")
    if "too many operations" in text:
        return InvalidRequest(
            f"the transaction is refused: etcd at {endpoint} takes fewer operations or comparisons in one (128 by "
            "default): split it, or start etcd with a higher --max-txn-ops"
        )
    if "request is too large" in text or "larger than max" in text:
        return InvalidRequest(
            f"the request is refused: etcd at {endpoint} takes fewer bytes in one (1.5 MiB by default; {text}): split "
            "it, or start etcd with a higher --max-request-bytes"
        )
    if code in (_INVALID_ARGUMENT, _OUT_OF_RANGE):
        return InvalidRequest(f"etcd at {endpoint} refused the request: {text}")
    if code == _RESOURCE_EXHAUSTED and "space exceeded" in text:
        # Not MetadataFull: etcd checks the quota before its log and again after it. The second check (quotaApplierV3)
        # applies the request all the same, so a refused client cannot know the outcome.
        return MetadataUnavailable(
            f"etcd at {endpoint} is full, whether this write was still applied is unknown: compact and defragment it or"
            " raise --quota-backend-bytes, then disarm its alarm"
        )
    return MetadataUnavailable(f"etcd at {endpoint} answered {text!r}: whether a write took effect is unknown")


def _split(compares: Sequence[Compare]) -> tuple[list[Compare], list[Compare]]:
    """The comparisons that etcd evaluates as we do, and those of a value with b""."""
    plain = [compare for compare in compares if compare.value != b""]
    return plain, [compare for compare in compares if compare.value == b""]


def _event_revision(event: Json) -> Revision:
    return Revision(int(event["kv"]["mod_revision"]))


def _utf8(key: str) -> bytes:
    try:
        return key.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"the key {key!r} has no UTF-8 form") from None


def _base64(data: bytes) -> str:
    return b64encode(data).decode()
