"""Tables: their requests, their loads, and what happens to a large one."""
