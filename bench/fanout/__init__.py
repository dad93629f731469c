"""`make bench-fanout`: many readers of one topic's records, on the topic itself (the source) and on its shadows."""
