from __future__ import annotations

import pytest
from kio.schema.index import api_key_map, schema_name_map

from gnomon.wire.kafka.api import APIS, Api, ApiKey, request_header_version, response_header_version

_EVERY_API = [pytest.param(api, id=api.key.name) for api in APIS.values()]


@pytest.mark.parametrize("api", _EVERY_API)
def test_the_table_and_the_classes_agree(api: Api) -> None:
    assert api.request.KEY == api.response.KEY == api.key
    assert api.request.VERSIONS == api.response.VERSIONS
    assert api.request.FLEXIBLE == api.response.FLEXIBLE == api.flexible_since
    first, last = api.request.VERSIONS
    assert api.max_version == last
    assert api.min_version == (0 if api.key is ApiKey.PRODUCE else first)
    assert all(api.serves(version) for version in range(first, last + 1))
    assert not api.serves(first - 1)
    assert not api.serves(last + 1)


@pytest.mark.parametrize("api", _EVERY_API)
def test_the_names_and_versions_are_those_of_kafka(api: Api) -> None:
    name = api_key_map[api.key]
    assert api.key.name.lower() == name
    assert api.request.__name__ == f"{name.title().replace('_', '')}Request"
    assert api.response.__name__ == f"{name.title().replace('_', '')}Response"
    versions = sorted(schema_name_map[name])
    assert (versions[0], versions[-1]) == api.request.VERSIONS


def test_every_key_is_served_and_in_order() -> None:
    assert list(APIS) == sorted(ApiKey)


@pytest.mark.parametrize("api", _EVERY_API)
def test_header_versions_are_those_of_kafka(api: Api) -> None:
    for version, classes in schema_name_map[api_key_map[api.key]].items():
        paths = {kind.name: path for kind, path in classes.items()}
        for kind, ours in (("request", request_header_version), ("response", response_header_version)):
            assert f".v{ours(api.key, version)}." in _header_of(paths[kind]), (kind, version)


def _header_of(path: str) -> str:
    module, _, name = path.partition(":")
    header: str = getattr(__import__(module, fromlist=[name]), name).__header_schema__.__module__
    return f"{header}."


def test_an_api_versions_response_always_has_the_first_header_version() -> None:
    assert [response_header_version(ApiKey.API_VERSIONS, version) for version in (0, 3, 4, 99)] == [0, 0, 0, 0]


def test_an_unknown_key_has_the_headers_without_tagged_fields() -> None:
    assert request_header_version(4_711, 30) == 1
    assert response_header_version(4_711, 30) == 0
