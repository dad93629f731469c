"""Topics over ledgers: the partition log, Kafka's front end, groups, admin."""
