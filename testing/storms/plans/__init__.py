"""Storms over clients that plan reads."""
