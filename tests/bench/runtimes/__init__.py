"""Our runtime of MLflow models beside MLflow's own server, KServe's and MLServer's, on the same models."""
