"""Bookies and the ledgers on them: modules shared by storage nodes, ledger clients and repair."""
