"""Runs in KServe's environment: a MLflow model as KServe's own servers of scikit-learn and LightGBM serve theirs, by
the model object itself on an array of the first protocol's `instances`.

python kserve_server.py MODEL PORT
"""

import sys

import mlflow
import numpy as np
from kserve import Model, ModelServer


class Served(Model):
    def __init__(self, folder: str) -> None:
        super().__init__("m")
        self._folder = folder
        self.load()

    def load(self) -> bool:
        self._model = mlflow.pyfunc.load_model(self._folder).get_raw_model()
        self.ready = True
        return self.ready

    def predict(self, payload, headers=None, response_headers=None):
        return {"predictions": self._model.predict(np.array(payload["instances"])).tolist()}


if __name__ == "__main__":
    server = ModelServer(
        http_port=int(sys.argv[2]), enable_grpc=False, workers=1, enable_docs_url=False, enable_latency_logging=False
    )
    server.start([Served(sys.argv[1])])
