"""Authorization: the session of a client, the operations and resources, and which of them each API asks for."""
