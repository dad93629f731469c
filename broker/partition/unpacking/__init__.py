"""Long batches: unpacked in a thread, for the client that sent them, and recompressed in the codec of their topic."""
