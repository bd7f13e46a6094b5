"""Runs in the flavors' environment: what MLflow itself answers, for one JSON body a line.

python flavor_reference.py MODEL

Each answer is a line: the body of MLflow's own server, and type and bytes of the prediction where it is one array.
"""

import io
import json
import sys
import warnings

import mlflow
import numpy as np
from mlflow.pyfunc import scoring_server


def main(path: str) -> None:
    warnings.filterwarnings("ignore")
    model = mlflow.pyfunc.load_model(path)
    schema = model.metadata.get_input_schema()
    print("ready", flush=True)
    for line in sys.stdin:
        given = scoring_server.infer_and_parse_data(json.loads(line), schema)
        predicted = model.predict(given)
        body = io.StringIO()
        scoring_server.predictions_to_json(predicted, body)
        array = predicted if isinstance(predicted, np.ndarray) and predicted.dtype.kind in "biuf" else None
        raw = None if array is None else [array.dtype.str, list(array.shape), array.tobytes().hex()]
        print(json.dumps({"body": json.loads(body.getvalue()), "raw": raw}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
