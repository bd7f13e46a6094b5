"""Rival policies, each with its own queue, period and metric delay; none is fed better or worse than in the field."""
