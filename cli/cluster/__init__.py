"""`gnomon cluster`: a whole cluster as processes of this machine."""
