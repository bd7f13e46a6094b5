"""A real HAProxy, small pods that count, an API server in memory: the gateway's surroundings in one process."""
