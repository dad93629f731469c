"""Names that a user types: completion by the shell, and suggestions for misspelt ones."""
