"""The check of `gnomon doctor` for subscriptions that nobody reads, and that keep records from retention."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.cli.doctor.check import Check, CheckStatus
from gnomon.cli.exit import Failure
from gnomon.cli.native.native_client import with_native_client
from gnomon.cli.options import NATIVE_DEFAULT
from gnomon.client.client import NativeClient
from gnomon.client.described_subscription import IdleSubscription

NAMES_MAX = 3
"""Names in one finding."""


def check_subscriptions(native: str | None) -> list[Check]:
    """Asks the brokers; none is returned if no address was given and none answers at the default one."""

    async def work(client: NativeClient) -> list[IdleSubscription]:
        return await client.subscriptions.idle()

    try:
        found = with_native_client(native or NATIVE_DEFAULT, work)
    except Failure as failure:
        return [] if native is None else [Check("subscriptions", CheckStatus.FAIL, str(failure))]
    return [idle_check(found)]


def idle_check(found: Sequence[IdleSubscription]) -> Check:
    """Names the subscriptions without consumers that keep records."""
    kept: dict[tuple[str, str], int] = {}
    for each in found:
        kept[each.topic, each.subscription] = kept.get((each.topic, each.subscription), 0) + each.records
    if not kept:
        return Check("subscriptions", CheckStatus.OK, "none without consumers keeps records from retention")
    names = [
        f"{name!r} of topic {topic!r} ({records} records)" for (topic, name), records in list(kept.items())[:NAMES_MAX]
    ]
    more = f" and {len(kept) - NAMES_MAX} more" if len(kept) > NAMES_MAX else ""
    return Check(
        "subscriptions",
        CheckStatus.WARN,
        f"no consumer reads {', '.join(names)}{more}: retention keeps the records",
        "consume, or delete them: `gnomon subscription delete TOPIC SUBSCRIPTION`",
    )
