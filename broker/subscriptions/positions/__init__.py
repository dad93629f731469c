"""The stores of subscription positions: records in the metadata, or entries of ledgers."""
