"""The ledger client: writers, readers, claims and recovery of replicated ledgers."""
