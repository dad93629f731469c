"""Authorization: the sessions of clients, the operations and resources, and a table for each front end."""
