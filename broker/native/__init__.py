"""The native front end: what Kafka's protocol cannot say, and the client for it."""
