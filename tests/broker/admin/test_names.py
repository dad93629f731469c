from __future__ import annotations

import json
import re
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.broker.admin.names import full_name, topic_name
from gnomon.log.topic_name import InvalidTopicName, check_topic_name, is_topic_name

SCHEMAS = json.loads(files("gnomon.broker.admin").joinpath("openapi.json").read_text())["components"]["schemas"]
TEXTS = st.one_of(
    st.text(max_size=12),
    st.lists(st.sampled_from(["persistent://", "public", "default", "/", "a", ".", "..", "-", "é", ":"])).map("".join),
)
PARTS = st.one_of(
    st.sampled_from(["public", "default", "..."]), st.from_regex(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{,80}", fullmatch=True)
)
NAMES = st.one_of(PARTS, st.tuples(PARTS, PARTS, PARTS).map("/".join)).filter(is_topic_name)


@given(NAMES)
def test_a_full_name_and_its_short_form_name_the_same_topic(name: str) -> None:
    assert topic_name(full_name(name)) == name
    assert re.fullmatch(SCHEMAS["FullName"]["pattern"], full_name(name))


@given(TEXTS)
def test_an_accepted_name_is_valid_and_matches_the_document(text: str) -> None:
    try:
        name = topic_name(text)
    except InvalidTopicName:
        return
    check_topic_name(name)
    assert re.fullmatch(SCHEMAS["Name"]["pattern"], text) or re.search(r"(^|/)\.", text), (
        "the document leaves out names that begin with a dot, for the sake of '.' and '..'"
    )
    assert topic_name(full_name(name)) == name


@given(st.from_regex(SCHEMAS["Name"]["pattern"], fullmatch=True).filter(lambda text: len(text) < 200))
def test_every_name_that_the_document_allows_is_accepted(text: str) -> None:
    check_topic_name(topic_name(text))


@pytest.mark.parametrize("text", ["", "a/b", "persistent://a", "persistent://a/b/c/d", "public/default/a/b/c", "a:b"])
def test_an_invalid_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidTopicName):
        topic_name(text)
