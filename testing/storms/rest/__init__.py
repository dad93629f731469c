"""The judges of the state that a storm leaves: nodes, metadata, bookies and copies at rest."""
