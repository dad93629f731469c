"""Repair: finding ledgers with too few copies, and copying missing entries."""
