"""Commands that speak the native protocol."""
