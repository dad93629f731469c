from __future__ import annotations

import dataclasses

from gnomon.runtime.settings.settings import SECTIONS, BrokerSettings, Settings, declared_settings


def test_the_advertised_host_follows_the_kafka_host_unless_given() -> None:
    assert BrokerSettings(kafka_host="10.0.0.1").advertised_host == "10.0.0.1"
    assert BrokerSettings(kafka_host="0.0.0.0", advertised_host="me").advertised_host == "me"


def test_every_field_is_declared_with_one_line_of_documentation() -> None:
    declared = declared_settings()
    for name, section in SECTIONS.items():
        for field in dataclasses.fields(section):
            setting = declared[f"{name}.{field.name}"]
            assert setting.doc.endswith(".")
            assert "\n" not in setting.doc
    assert declared["broker.kafka_port"].variable == "GNOMON_BROKER__KAFKA_PORT"


def test_every_section_can_be_set() -> None:
    sections = {item.name for item in dataclasses.fields(Settings)} - {"data_dir", "kafka"}
    assert {name.replace(".", "_") for name in SECTIONS} == sections
