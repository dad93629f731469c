"""Storms over sources and their shadows."""
