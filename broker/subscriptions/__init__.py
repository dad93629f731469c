"""Durable subscriptions: cursors and where their positions are kept."""
