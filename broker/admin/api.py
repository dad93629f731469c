"""The admin API of a broker: its routes, and the document that describes them.

`openapi.json` is kept by hand and sent as it is; tests hold every answer of every route against it.
"""

from __future__ import annotations

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gnomon.broker.admin.shadow_topics import ShadowTopics
from gnomon.broker.admin.topic_stats import TopicStats
from gnomon.broker.broker import Broker


def api_routes(broker: Broker) -> list[Route]:
    """What is served of one broker."""
    document = files(__package__).joinpath("openapi.json").read_bytes()

    async def openapi(request: Request) -> Response:
        return Response(document, media_type="application/json")

    return [
        Route("/admin/v2/openapi.json", openapi, methods=["GET"]),
        *ShadowTopics(broker).routes(),
        *TopicStats(broker).routes(),
    ]
