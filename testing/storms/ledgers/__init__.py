"""Storms over replicated ledgers."""
