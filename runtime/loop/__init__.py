"""The event loop of a process: its sockets, the lengths of its turns, and loops that let others run."""
