"""The vertical axis: how many requests in flight one replica of a revision may take. Pure; every 30 s."""
