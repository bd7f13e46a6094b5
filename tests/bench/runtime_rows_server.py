"""Runs in our front's environment: our runtime on a model of MLflow's.

python runtime_rows_server.py shared PORT MODEL MODEL_PYTHON    as it is
python runtime_rows_server.py alone PORT MODEL MODEL_PYTHON     no two requests share a call of the model
"""

import sys
from pathlib import Path

from runtimes.interface import serving
from runtimes.mlflow.engine import MlflowEngine
from runtimes.mlflow.plan import Plan
from runtimes.mlflow.predictor import Loaded
from runtimes.mlflow.settings import Settings


class Alone(MlflowEngine):
    """The same engine, without batching."""

    def _planned(self, loaded: Loaded) -> Plan:
        plan = super()._planned(loaded)
        self._pool.shares = False
        return plan


def main(which: str, port: int, model: Path, python: Path) -> int:
    settings = Settings(host="127.0.0.1", port=port, model=model, model_python=python, predictors=1)
    engine = {"shared": MlflowEngine, "alone": Alone}[which]
    return serving.run(settings, lambda metrics: engine(settings, metrics))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), *map(Path, sys.argv[3:])))
