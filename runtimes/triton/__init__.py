"""Triton behind the serving interface, which is a proxy in front of it on loopback.

`python -m runtimes.triton` writes a model repository from an MLflow model, runs the real server on it, and is the
process that a pod watches. Triton's layout (`bin/tritonserver`, `backends/`) is that of its own images.
"""
