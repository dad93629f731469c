"""Methods of the native service that write batches, and the partitions that they write to."""
