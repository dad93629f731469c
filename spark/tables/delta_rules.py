"""The rules of a Delta table that a writer of whole files does not keep. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from gnomon.spark.tables.table import BadTable

_FEATURES: Final = ("checkConstraints", "columnMapping", "generatedColumns", "identityColumns", "rowTracking")
_CONSTRAINT: Final = "delta.constraints."
_MAPPING: Final = "delta.columnMapping.mode"


def check_rules(name: str, configuration: Mapping[str, str], writer_features: Collection[str]) -> None:
    """Checks that a table has no rule that files of tasks would evade.

    Raises:
        BadTable: it has one.
    """
    rules = [str(feature) for feature in _FEATURES if feature in writer_features]
    rules += [key for key in configuration if key.startswith(_CONSTRAINT)]
    if configuration.get(_MAPPING, "none") != "none":
        rules.append(_MAPPING)
    if rules:
        raise BadTable(f"{name} has {', '.join(rules)}, which the files of tasks would evade: write to another table")
