"""The documents of `gnomon kv txn`; numbers cite the invariants of `txn_document`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gnomon.cli.kv.txn_document import parse_document
from gnomon.log.tables.operations import (
    CompareOperator,
    CompareTarget,
    Comparison,
    DeleteKey,
    GetKey,
    IncrementKey,
    PutKey,
)
from gnomon.log.tables.transaction_form import TransactionForm, UnfitTransaction


def parsed(*, as_base64: bool = False, **document: Any) -> TransactionForm:
    return parse_document(json.dumps(document).encode(), as_base64=as_base64)


def refusal(data: str | bytes) -> str:
    with pytest.raises(UnfitTransaction) as caught:
        parse_document(data if isinstance(data, bytes) else data.encode(), as_base64=False)
    return str(caught.value)


def test_the_document_of_the_page_is_a_transaction() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text().partition("## gnomon kv")[2]
    found = parse_document(page.partition("```json\n")[2].partition("```")[0].encode(), as_base64=False)
    assert found.then == [PutKey(b"leader", b"two", 10_000), IncrementKey(b"visits", 5), GetKey(b"colour")]


def test_each_comparison_is_a_target_a_key_an_operator_and_an_operand() -> None:  # 1
    for target in CompareTarget:
        for operator in CompareOperator:
            operand: Any = "two words" if target is CompareTarget.VALUE else -1
            found = parsed(compare=[[target.value, "a key", operator.value, operand]]).compare
            expected = operand.encode() if target is CompareTarget.VALUE else operand
            assert found == [Comparison(b"a key", target, operator, expected)]
    (absent,) = parsed(compare=[["value", "", "!=", None]]).compare
    assert absent == Comparison(b"", CompareTarget.VALUE, CompareOperator.NOT_EQUAL, None)


def test_each_operation_is_a_word_with_the_arguments_of_its_command() -> None:  # 1
    found = parsed(
        then=[["put", "a", "1 2"], ["put", "b", "", 1.5], ["incr", "n"], ["incr", "m", -3]],
        otherwise=[["get", "a"], ["delete", "a"]],
    )
    assert found.then == [PutKey(b"a", b"1 2"), PutKey(b"b", b"", 1_500), IncrementKey(b"n", 1), IncrementKey(b"m", -3)]
    assert found.otherwise == [GetKey(b"a"), DeleteKey(b"a")]


def test_keys_and_values_may_all_be_base64() -> None:  # 1
    found = parsed(as_base64=True, compare=[["value", "/w==", "<", "AA=="]], then=[["put", "/w==", "AAE="]])
    assert (found.compare[0].key, found.compare[0].operand) == (b"\xff", b"\0")
    assert found.then == [PutKey(b"\xff", b"\0\1")]


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ('{"then": [', "it is no JSON: Expecting value: line 1 column 11"),
        (b"\xff{}", "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        ("[]", "write an object with compare, then, otherwise"),
        ('{"else": []}', "the field 'else' is unknown"),
        ('{"then": [], "then": []}', "a field is given twice: then, then"),
        ('{"then": {}}', "then: write a list of lists"),
        ('{"compare": [["value", "a", "==", "1"], ["value", "a", "=", "1"]]}', "compare[1]: "),
        ('{"compare": [["size", "a", "==", 1]]}', 'compare[0]: ["size", "a", "==", 1] is no comparison'),
        ('{"compare": [["value", "a", "==", 1]]}', "compare[0]: the operand 1 is no text"),
        ('{"compare": [["version", "a", ">", "1"]]}', "compare[0]: a version is compared with a number, not with '1'"),
        ('{"compare": [["version", "a", ">", true]]}', "compare[0]: a version is compared with a number"),
        ('{"compare": ["value a == 1"]}', 'compare[0]: "value a == 1" is no comparison'),
        ('{"then": ["get a"]}', 'then[0]: "get a" is no operation'),
        ('{"then": [["get", "a", "b"]]}', "then[0]: "),
        ('{"then": [["put", "a", 1]]}', "then[0]: the value 1 is no text"),
        ('{"then": [["put", 1, "a"]]}', "then[0]: the key 1 is no text"),
        ('{"then": [["get", "\\ud800"]]}', "then[0]: the key: 'utf-8' codec can't encode"),
        ('{"then": [["put", "a", "b", 0]]}', "then[0]: a time to live is 0.001 to"),
        ('{"then": [["put", "a", "b", NaN]]}', "then[0]: a time to live is 0.001 to"),
        ('{"then": [["put", "a", "b", "9"]]}', "then[0]: a time to live is 0.001 to"),
        ('{"otherwise": [["incr", "a", 1.5]]}', "otherwise[0]: 1.5 is no whole number to add"),
        ('{"otherwise": [["incr", "a", 9223372036854775808]]}', "otherwise[0]: an increment is a number of 64 bits"),
        ('{"then": [["delete", "%s"]]}' % ("k" * 501), "then[0]: the key has 501 bytes: 500 are allowed"),
        ('{"then": [["get", "a"], ["put", "a", ""], ["delete", "a"]]}', "then: a transaction writes a key once"),
    ],
)
def test_any_other_document_is_refused_with_the_place_of_the_mistake(document: str | bytes, text: str) -> None:  # 2
    assert text in refusal(document)


def test_text_that_is_no_base64_is_refused_with_its_place() -> None:  # 2
    with pytest.raises(UnfitTransaction, match=r"then\[0\]: the value: 'no base64' is no base64"):
        parsed(as_base64=True, then=[["put", "AA==", "no base64"]])
