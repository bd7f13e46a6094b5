"""A refusal as both sides of the MLflow runtime raise it; the interface owns how it looks to a client."""

from runtimes.interface.errors import MODEL_FAILED, MOST_PROBLEMS, PREDICTOR_DIED, Problem, RefusedError, refused

__all__ = ["MODEL_FAILED", "MOST_PROBLEMS", "PREDICTOR_DIED", "Problem", "RefusedError", "refused"]
