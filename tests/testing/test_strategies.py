from __future__ import annotations

from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from gnomon.testing.strategies import messages
from gnomon.wire.kafka.messages.group import JoinGroupRequest, JoinGroupResponse
from gnomon.wire.kafka.schema import encode

_quick = settings(max_examples=20, derandomize=True, deadline=None, database=None)


@_quick
@given(messages(JoinGroupRequest, 4))
def test_fields_that_the_version_lacks_have_their_defaults(request: JoinGroupRequest) -> None:
    assert request.group_instance_id is None
    assert request.reason is None


def test_null_is_drawn_only_in_versions_that_allow_it() -> None:
    first = settings(_quick, phases=[Phase.generate])
    assert find(messages(JoinGroupResponse, 7), lambda m: m.protocol_name is None, settings=first)

    @_quick
    @given(messages(JoinGroupResponse, 6))
    def check(response: JoinGroupResponse) -> None:
        assert response.protocol_name is not None

    check()


@_quick
@given(messages(JoinGroupRequest, 9, {"name": st.just("range"), "group_id": st.sampled_from(["a", "b"])}))
def test_values_for_named_fields_are_taken_at_any_depth(request: JoinGroupRequest) -> None:
    assert request.group_id in ("a", "b")
    assert all(protocol.name == "range" for protocol in request.protocols)
    encode(request, 9)
