"""Storm clients over the sink of `gnomon.spark`: drivers that die, and the judge of the rows that they wrote."""
