"""The vocabulary: frozen, closed types, names and units. Imports nothing of ours and does no I/O."""
