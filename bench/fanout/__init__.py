"""`make bench-fanout`: many readers of one topic, on its source and on shadows."""
