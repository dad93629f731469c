"""The partition log for every reader: topic records, chains of segments, entries, positions and searches."""
