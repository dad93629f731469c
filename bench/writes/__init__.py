"""Native and conditional writes: their requests, and loads measured in turn."""
