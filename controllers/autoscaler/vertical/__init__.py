"""How much one replica takes: the vertical axis, pure."""
