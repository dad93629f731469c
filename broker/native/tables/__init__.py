"""Methods of the native service on tables."""
