"""gnomon's own storms: clients, faults and judges; they are not in the wheel."""
