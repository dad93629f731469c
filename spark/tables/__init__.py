"""Tables that pipelines write: Delta, Iceberg and folders of Parquet files."""
