"""Protocols that a called engine speaks besides its own: their bodies, in and out, and nothing of HTTP."""
