"""Every copy of a ledger's entries, at each bookie that should have it: for audits."""
