"""The native front end: RPC for operations that Kafka's protocol does not have, above all on subscriptions."""
