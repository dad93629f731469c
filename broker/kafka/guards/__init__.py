"""Authorization of Kafka's requests, before their handlers see them."""
