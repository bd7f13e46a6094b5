"""A small world on a fake clock: an API server in memory, pods that start or fail, a gateway with real queueing.

The controllers in it are the production ones, shells included; only their client, clock and statistics are the lab's.
"""
