"""The command line: a D-Bus client that imports no other room."""
