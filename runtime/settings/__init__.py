"""Settings: their declarations, and loading them from file, environment and flags."""
