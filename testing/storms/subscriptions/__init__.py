"""Storms over native subscriptions."""
