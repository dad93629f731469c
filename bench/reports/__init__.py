"""The results of a run: its outcomes, the goals, the tables and the picture."""
