"""Methods of the native service that run as tasks, with the broker's errors translated into the protocol's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gnomon.broker.errors import KafkaError
from gnomon.broker.subscriptions.hosted_partition import STORE_ERRORS
from gnomon.client.errors import InvalidCall, NativeError, NoSuchTopic, NotLeader, Unavailable
from gnomon.log.subscription_keys import InvalidSubscriber
from gnomon.runtime.rpc.call import Call, Method, in_task
from gnomon.runtime.tasks import Tasks
from gnomon.wire.kafka.errors import ErrorCode


def in_translated_task(tasks: Tasks, work: Callable[[Call], Awaitable[object]]) -> Method:
    """`in_task` for work that raises the broker's errors."""

    async def translated(call: Call) -> object:
        try:
            return await work(call)
        except InvalidSubscriber as error:
            raise InvalidCall(str(error)) from error
        except STORE_ERRORS as error:
            raise Unavailable(f"{error}; whether it was done is unknown") from error
        except KafkaError as error:
            raise _native(error) from error

    return in_task(tasks, translated)


def _native(error: KafkaError) -> NativeError:
    if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return NotLeader(str(error))
    if error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        return NoSuchTopic(str(error))
    return Unavailable(str(error))
