"""Consumer groups in storms: clients that join, commit, expire and are deleted, and the checkers of their records."""
