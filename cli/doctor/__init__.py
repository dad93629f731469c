"""`gnomon doctor`: checks of this machine, of a data directory and of a broker."""
