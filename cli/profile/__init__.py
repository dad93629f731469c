"""Profiles: named sets of addresses, so that commands need none."""
