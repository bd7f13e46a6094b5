"""The control loops: observe, decide, act. Each sub-package owns one of them; they meet only in the API server."""
