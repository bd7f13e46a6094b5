"""Spec -> Pulumi resources: `manifests` computes plain Kubernetes objects, the components only connect them."""
