"""The errors of Spark's jobs over files (`spark.pipelines.files.read_failure`)."""

from __future__ import annotations

from gnomon.spark.pipelines.files.read_failure import first_line, read_failure

OF_A_FILE = """An error occurred while calling o1.collect.
: org.apache.spark.SparkException: [FAILED_READ_FILE] Error while reading file file:///in/a b.json.  SQLSTATE: KD001
\tat org.apache.spark.sql.errors
Caused by: org.apache.spark.SparkException: [MALFORMED] Malformed records are detected. SQLSTATE: 22023
\tat org.apache.spark.sql.errors
Caused by: org.apache.spark.SparkRuntimeException: [CANNOT_PARSE_JSON_FIELD] Cannot parse the field 'a'. SQLSTATE: 2203G
"""
OF_A_TASK = """Job aborted
Traceback (most recent call last):
gnomon.spark.writing.target.RowRefused: topic 'orders' has the partitions 0 to 1: not 5
"""


def test_a_file_that_cannot_be_read_is_named_with_the_last_cause() -> None:
    found = str(read_failure(Exception(OF_A_FILE)))
    assert found == "file:///in/a b.json: [CANNOT_PARSE_JSON_FIELD] Cannot parse the field 'a'"


def test_an_error_of_gnomon_in_a_task_is_its_text() -> None:
    assert str(read_failure(Exception(OF_A_TASK))) == "topic 'orders' has the partitions 0 to 1: not 5"


def test_any_other_error_is_its_first_line_that_says_something() -> None:
    assert str(read_failure(Exception("\n[PATH_NOT_FOUND] There is no x. SQLSTATE: 42K03\nmore"))) == (
        "[PATH_NOT_FOUND] There is no x"
    )
    assert first_line(Exception("")) == ""
