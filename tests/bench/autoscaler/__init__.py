"""Us and each rival on the same traffic: bad requests at equal cost, steps, steadiness. It reports; it is no test."""
