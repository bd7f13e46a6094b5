"""What runs in a model's pod, as a distribution of its own.

Owns the serving interface, the predictors, the fetch of a model and the description of its image. Leaves manifests,
routing and scaling to the control plane, of which it imports nothing. One idea: our process serves, the model's
environment only predicts, so no pin of ours can clash with a model's.
"""
