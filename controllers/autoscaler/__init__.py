"""The two-axis autoscaler: how many replicas each revision has, and how many requests each of them may take."""
