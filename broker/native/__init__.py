"""The native front end: RPC for what Kafka's protocol cannot express, above all subscriptions."""
