"""`gnomon pipeline`: pipelines between topics, tables and files, and audits of topics."""
