"""A runtime for state machines whose state is the replay of their log."""
