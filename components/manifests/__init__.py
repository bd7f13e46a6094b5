"""Pure functions from the spec to plain Kubernetes objects; no Pulumi, no I/O, no clock."""
