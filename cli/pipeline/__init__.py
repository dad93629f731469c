"""`gnomon pipeline`: pipelines between topics and tables, and audits of topics."""
