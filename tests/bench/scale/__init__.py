"""Ten thousand endpoints, a real HAProxy in front of them and traffic: what `autoscaler_scale` is measured on."""
