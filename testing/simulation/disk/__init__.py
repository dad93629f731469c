"""Simulated disks with faults, and the states of a real file that a power failure can leave."""
