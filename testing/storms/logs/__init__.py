"""One topic in storms: a producer and a reader that use all that the protocol offers, and the judge of its records."""
