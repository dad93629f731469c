"""Real drivers of Spark: stages that run in them, kills of their processes and of a cluster's, and numbered rows."""
