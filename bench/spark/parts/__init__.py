"""The parts of the bench with Spark; each has a function `measure` that takes a `PartRun`."""
