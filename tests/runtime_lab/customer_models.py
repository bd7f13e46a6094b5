"""Runs in MLflow's environment: log models with code of a customer's own, among them some that can't be called.

python customer_models.py FOLDER
"""

import sys
import tempfile
import warnings
from pathlib import Path

import mlflow
import pandas as pd
from mlflow.models import ModelSignature, infer_signature
from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

SIGNED = {"signature": ModelSignature(Schema([ColSpec("double", "x")])), "pip_requirements": ["mlflow"]}
EXAMPLE = pd.DataFrame({"x": [1.0, 2.0]})
FROM_CODE = """
import mlflow

class Triple(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input):
        return list(model_input["x"] * 3)

mlflow.models.set_model(Triple())
"""
EXPORTING = '''
"""An estimator that traces its predictions with OpenTelemetry's own exporter, which has a thread."""

import os
import time

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from sklearn.base import BaseEstimator


class ToFile(SpanExporter):
    def export(self, spans):
        with open(os.environ["SPANS"], "a") as file:
            file.writelines(f"{span.attributes['pid']}\\n" for span in spans)
        return SpanExportResult.SUCCESS


provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(ToFile(), schedule_delay_millis=100))
tracer = provider.get_tracer("model")


class Traced(BaseEstimator):
    def predict(self, x):
        with tracer.start_as_current_span("predict", attributes={"pid": os.getpid()}):
            time.sleep(0.02)  # long enough for a second predictor to be worth it
            return x.to_numpy()[:, 0] if hasattr(x, "to_numpy") else x[:, 0]
'''


class AnyNames(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    def predict(self, surroundings, whatever, params=None):  # type: ignore[no-untyped-def]
        return list(whatever["x"] * 2)


class OneName(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    def predict(self, rows):  # type: ignore[no-untyped-def]
        return list(rows["x"] * 2)


class ThreeNames(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    def predict(self, rows, threshold, scale):  # type: ignore[no-untyped-def]
        return [1.0] * len(rows)


class NeedsKeyword(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    def predict(self, context, rows, *, threshold):  # type: ignore[no-untyped-def]
        return [1.0] * len(rows)


class Repeats(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        return list(self.predict_stream(context, model_input, params))

    def predict_stream(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        said = model_input["prompt"]
        yield from ({"said": said if isinstance(said, str) else said[0]} for _ in range(params["times"]))


def main(folder: Path) -> None:
    warnings.filterwarnings("ignore")
    models = {"any-names": AnyNames(), "one-name": OneName(), "three-names": ThreeNames(), "keyword": NeedsKeyword()}
    for name, model in models.items():
        mlflow.pyfunc.save_model(folder / name, python_model=model, **SIGNED)
    prompt = ModelSignature(Schema([ColSpec("string", "prompt")]), None, ParamSchema([ParamSpec("times", "long", 1)]))
    mlflow.pyfunc.save_model(
        folder / "repeats", python_model=Repeats(), signature=prompt, pip_requirements=["mlflow"], streamable=True,
        metadata={"task": "llm/v1/completions"},
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as author:  # nobody else's machine has this path
        code = Path(author) / "triple.py"
        code.write_text(FROM_CODE)
        mlflow.pyfunc.save_model(folder / "from-code", python_model=str(code), **SIGNED)
        module = Path(author) / "exporting.py"
        module.write_text(EXPORTING)
        sys.path.insert(0, author)
        from exporting import Traced  # type: ignore[import-not-found]

        mlflow.sklearn.save_model(
            Traced(), folder / "traced", code_paths=[str(module)], signature=infer_signature(EXAMPLE, [1.0]),
            input_example=EXAMPLE, serialization_format="cloudpickle", pip_requirements=["mlflow"],
        )  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
