"""The one serving interface: an ASGI application that every pod has in its path exactly once.

It owns everything that must hold whatever the engine: routes, request ids, admission, deadlines, limits, compression,
the error shapes, readiness, drain and hooks. It depends on the standard library, orjson, zstandard and
prometheus-client alone, so that it can be installed beside any engine's pins.
"""
