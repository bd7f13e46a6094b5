"""Real engines for tests: their environments, made once and kept, and tiny models that are made with real tools."""
