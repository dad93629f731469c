"""What a run has measured: its outcomes, the goals, the tables and the picture."""
