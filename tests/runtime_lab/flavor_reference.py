"""Runs in a flavors' environment: what MLflow itself answers, for one JSON body a line.

python flavor_reference.py MODEL

Each answer is a line: the body of MLflow's own server, and type and bytes of the prediction where it is one array;
where the body asks for a stream, what ``predict_stream`` yields; where MLflow refuses it, the reason.
"""

import io
import json
import sys
import warnings

import mlflow
import numpy as np
from mlflow.pyfunc import scoring_server


class Recorded:
    """A loaded model that keeps what it returned last."""

    def __init__(self, path: str) -> None:
        self._model = mlflow.pyfunc.load_model(path)
        self.metadata = self._model.metadata
        self.predicted: object = None

    def predict(self, data, params=None):  # type: ignore[no-untyped-def]
        self.predicted = self._model.predict(data, params=params)
        return self.predicted

    def pieces(self, document):  # type: ignore[no-untyped-def]
        return [scoring_server._get_jsonable_obj(piece) for piece in self._model.predict_stream(document)]


def main(path: str) -> None:
    warnings.filterwarnings("ignore")
    out, sys.stdout = sys.stdout, io.StringIO()  # what a model's library says there is no answer
    model = Recorded(path)
    schema = model.metadata.get_input_schema()
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        try:
            said = answer(model, schema, line)
        except Exception as error:
            said = {"refused": str(error)}
        print(json.dumps(said, cls=scoring_server.NumpyEncoder), file=out, flush=True)


def answer(model, schema, line):  # type: ignore[no-untyped-def]
    document = json.loads(line)
    if document.get("stream") is True:
        return {"pieces": model.pieces(document)}
    said = scoring_server.invocations(line, "application/json", model, schema)
    predicted = model.predicted
    array = predicted if isinstance(predicted, np.ndarray) and predicted.dtype.kind in "biuf" else None
    raw = None if array is None else [array.dtype.str, list(array.shape), array.tobytes().hex()]
    return {"body": json.loads(said.response), "raw": raw}


if __name__ == "__main__":
    main(sys.argv[1])
