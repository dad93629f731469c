"""The simulated network: streams between machines, with latency, cuts, resets and lost power."""
