"""Models and judges of the metadata service."""
