"""`gnomon ledger`: ledgers of a cluster or of a data directory."""
