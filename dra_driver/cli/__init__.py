"""The command line: one module per command, no business rules; imports are lazy so that ``--help`` answers at once."""
