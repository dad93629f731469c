"""The work of a pipeline's tasks: records become rows, files and dead letters."""
