"""The topics: their image on one broker, the rules of shadows, and their administration."""
