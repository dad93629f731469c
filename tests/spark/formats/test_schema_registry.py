from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from gnomon.spark.formats import schema_registry
from gnomon.spark.formats.avro_schema import UnknownSchema
from gnomon.spark.formats.decoder import BadFormat
from gnomon.spark.formats.schema_registry import RegisteredSchema, SchemaRegistry, UnusableRegistry

LONG = '{"type": "long"}'
ANSWERS: dict[str, tuple[int, object]] = {
    "/schemas/ids/1": (200, {"schema": LONG}),
    "/schemas/ids/2": (200, {"schema": "message A {}", "schemaType": "PROTOBUF"}),
    "/schemas/ids/3": (404, {"error_code": 40403, "message": "Schema not found"}),
    "/schemas/ids/4": (404, {"message": "no such page"}),
    "/schemas/ids/5": (401, {"error_code": 401, "message": "Unauthorized"}),
    "/schemas/ids/6": (500, "broken"),
    "/schemas/ids/7": (200, [LONG]),
    "/schemas/ids/8": (200, {"schema": {"type": "long"}}),
    "/schemas/ids/9": (200, {"schema": LONG, "references": [{"name": "a", "subject": "a", "version": 1}]}),
    "/schemas/ids/10": (200, b"[" * 100_000),
    "/schemas/ids/11": (200, b"\xff"),
    "/schemas/ids/12": (200, {"schema": LONG, "padding": "x" * 2_000}),
    "/subjects/orders-value/versions/latest": (200, {"subject": "orders-value", "version": 3, "id": 1, "schema": LONG}),
    "/subjects/a%2Fb%20c/versions/latest": (200, {"id": 2, "schema": LONG, "schemaType": "JSON"}),
    "/subjects/none/versions/latest": (404, {"error_code": 40401, "message": "Subject not found"}),
    "/subjects/odd/versions/latest": (200, {"schema": LONG}),
}
ASKED: list[tuple[str, str | None]] = []


class Registry(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        ASKED.append((self.path, self.headers["Authorization"]))
        status, answer = ANSWERS[self.path.removeprefix("/base")]
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_schemas_are_fetched_by_id(url: str) -> None:
    assert SchemaRegistry(url).by_id(1) == RegisteredSchema(1, "AVRO", LONG)
    assert SchemaRegistry(url + "/").by_id(2) == RegisteredSchema(2, "PROTOBUF", "message A {}")
    assert SchemaRegistry(url + "/base/").by_id(1) == RegisteredSchema(1, "AVRO", LONG)


def test_the_newest_schema_of_a_subject_is_fetched(url: str) -> None:
    assert SchemaRegistry(url).latest("orders-value") == RegisteredSchema(1, "AVRO", LONG)
    assert SchemaRegistry(url).latest("a/b c") == RegisteredSchema(2, "JSON", LONG)


def test_headers_are_sent(url: str) -> None:
    ASKED.clear()
    SchemaRegistry(url, headers={"Authorization": "Basic eA=="}).by_id(1)
    assert ASKED == [("/schemas/ids/1", "Basic eA==")]


def test_an_unknown_schema_and_an_unknown_subject_are_named(url: str) -> None:
    with pytest.raises(UnknownSchema, match="does not have schema 3"):
        SchemaRegistry(url).by_id(3)
    with pytest.raises(UnknownSchema, match="does not have subject 'none'"):
        SchemaRegistry(url).latest("none")


@pytest.mark.parametrize(
    ("schema_id", "reason"),
    [(4, "status 404, 'no such page'"), (5, "status 401, 'Unauthorized'"), (6, "status 500, ''")],
)
def test_a_refusal_is_given_with_its_status_and_message(url: str, schema_id: int, reason: str) -> None:
    with pytest.raises(UnusableRegistry, match=f"refuses the request for schema {schema_id}: {reason}"):
        SchemaRegistry(url).by_id(schema_id)


@pytest.mark.parametrize("schema_id", [7, 8, 10, 11])
def test_an_answer_that_is_not_a_schema_is_refused(url: str, schema_id: int) -> None:
    with pytest.raises(UnusableRegistry, match=f"does not answer with a schema for schema {schema_id}"):
        SchemaRegistry(url).by_id(schema_id)


def test_an_answer_without_an_id_is_refused(url: str) -> None:
    with pytest.raises(UnusableRegistry, match="does not answer with a schema for subject 'odd'"):
        SchemaRegistry(url).latest("odd")


def test_a_long_answer_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "ANSWER_BYTES_MAX", 1_000)
    with pytest.raises(UnusableRegistry, match="does not answer with a schema"):
        SchemaRegistry(url).by_id(12)


def test_a_schema_that_refers_to_others_is_refused(url: str) -> None:
    with pytest.raises(BadFormat, match=r"schema 9 .* refers to other schemas"):
        SchemaRegistry(url).by_id(9)


def test_a_registry_that_cannot_be_reached_is_named() -> None:
    with HTTPServer(("127.0.0.1", 0), Registry) as server:
        gone = f"http://127.0.0.1:{server.server_port}"
    with pytest.raises(UnusableRegistry, match=f"{gone} cannot be reached"):
        SchemaRegistry(gone).by_id(1)


def test_a_registry_that_does_not_answer_in_time_cannot_be_reached() -> None:
    with (
        HTTPServer(("127.0.0.1", 0), Registry) as silent,  # it listens, and serves no request
        pytest.raises(UnusableRegistry, match="cannot be reached: timed out"),
    ):
        SchemaRegistry(f"http://127.0.0.1:{silent.server_port}", timeout_seconds=0.05).by_id(1)


@pytest.mark.parametrize("address", ["", "localhost:8081", "file:///etc/passwd", "http://", "ftp://host"])
def test_another_address_is_refused(address: str) -> None:
    with pytest.raises(BadFormat, match="http://"):
        SchemaRegistry(address)
