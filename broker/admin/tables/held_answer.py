"""An answer that has room in memory for as long as it is sent, however slowly its client takes it."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gnomon.broker.admin.tables.body_room import BodyRoom


class HeldAnswer(Response):
    """An answer whose bytes are counted."""

    def __init__(self, answer: Response, size_bytes: int, room: BodyRoom) -> None:
        """An answer that is not sent yet.

        Args:
            size_bytes: about the memory of what it is made from.
            room: has the bytes of all answers that are being sent.
        """
        super().__init__(None, answer.status_code)
        self._answer = answer
        self._size_bytes = size_bytes
        self._room = room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the answer.

        Raises:
            AdminRefused: there is no room. Nothing was sent.
        """
        with self._room.hold() as take:
            take(self._size_bytes)
            await self._answer(scope, receive, send)
