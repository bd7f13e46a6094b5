"""Autoscaling policies, ours among them, against simulated load, pods and clients. Pure but for reading files."""
