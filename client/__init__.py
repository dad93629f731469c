"""The native client: subscriptions and their consumers, for programs; it imports nothing of the broker."""
