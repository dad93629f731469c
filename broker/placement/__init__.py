"""Placement: the live brokers, the leaders computed from them, and the registration of this broker."""
