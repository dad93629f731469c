"""Other stores of keys and values, each under the load of its own benchmark program."""
