"""Plans of reads: which entries hold a range of offsets, how they are read from bookies, and holds that keep them."""
