"""Consumer groups in storms: their members and administrators, and the judges of generations and offsets."""
