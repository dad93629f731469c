"""Storms over real processes: clusters, clients and cut links."""
