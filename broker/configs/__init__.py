"""Configs of topics and of the broker: names, checks, defaults, and those that are stored."""
