from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from gnomon.wire.kafka.errors import ErrorCode


def test_numbers_names_and_retriability_are_kafkas() -> None:
    theirs = {int(code): (code.name.upper(), code.retriable) for code in KioErrorCode}
    assert {int(code): (code.name, code.retriable) for code in ErrorCode} == theirs


def test_every_error_has_a_text_of_its_own() -> None:
    texts = [code.text for code in ErrorCode]
    assert all(texts)
    assert len(set(texts)) == len(texts)


def test_a_code_is_found_by_its_number_and_is_an_integer() -> None:
    assert ErrorCode(79) is ErrorCode.MEMBER_ID_REQUIRED
    assert ErrorCode.MEMBER_ID_REQUIRED + 0 == 79
