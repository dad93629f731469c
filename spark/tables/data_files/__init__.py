"""The Parquet files of a table: their rows, statistics and partitions, as tasks write them."""
