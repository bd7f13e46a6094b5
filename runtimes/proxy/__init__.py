"""The proxy runtime: the serving interface in front of another HTTP server in the same pod."""
