"""The admin API of a broker: its routes, and the document that describes them.

`openapi.json` is written by hand and sent unchanged; tests compare every answer of every route with that document.
"""

from __future__ import annotations

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gnomon.broker.admin.administered import Administered
from gnomon.broker.admin.leader_calls import LeaderCalls
from gnomon.broker.admin.shadow_topics import ShadowTopics
from gnomon.broker.admin.tables.table_routes import TableRoutes
from gnomon.broker.admin.topic_stats import TopicStats
from gnomon.broker.admin.topic_subscriptions import TopicSubscriptions
from gnomon.broker.authorization.admin_table import ADMIN_RULES
from gnomon.broker.authorization.authorizer import Access
from gnomon.broker.native.peers import Peers


def api_routes(served: Administered) -> list[Route]:
    """The routes of one broker."""
    access = Access(served.authorizer, ADMIN_RULES)
    shadow_topics = ShadowTopics(served.topics, served.records, served.admin, served.storage, served.configs, access)
    peers = Peers(served.world, served.cluster_id)
    stats = TopicStats(
        served.topics, served.records, served.placement, served.partitions, served.replication, peers, access
    )
    leaders = LeaderCalls(served.placement, served.subscriptions, peers)
    subscriptions = TopicSubscriptions(served.records, served.placement, leaders, access)
    tables = TableRoutes(served.topics, served.records, served.placement, served.tables, access, served.world.clock)
    document = files(__package__).joinpath("openapi.json").read_bytes()

    async def openapi(request: Request) -> Response:
        return Response(document, media_type="application/json")

    return [
        Route("/admin/v2/openapi.json", openapi, methods=["GET"]),
        *shadow_topics.routes(),
        *stats.routes(),
        *subscriptions.routes(),
        *tables.routes(),
    ]
