"""`gnomon bench`: a load from the command line, measured."""
