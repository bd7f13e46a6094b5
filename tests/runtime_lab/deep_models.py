"""Runs in the deep flavors' environment: log one tiny model of each kind that is compared with pyfunc.

    python deep_models.py KIND FOLDER

KIND is one of those below. Every weight comes of a fixed seed and every tokenizer is made here, so nothing is fetched.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.models import ModelSignature, infer_signature
from mlflow.types import Schema, TensorSpec
from sklearn.base import BaseEstimator

LAB = Path(__file__).parent
TEXTS = ["a quiet harbour", "Rain, and then no rain at all."]


class Net(BaseEstimator):  # type: ignore[misc]
    """A network of torch's behind scikit-learn's interface, as whoever trains with skorch has it."""

    def fit(self, x: Any, y: Any) -> Net:
        self.weights_ = np.full((x.shape[1], 1), 0.5, dtype=np.float32)
        return self

    def predict(self, x: Any) -> Any:
        import torch

        return torch.tanh(torch.tensor(np.asarray(x, dtype=np.float32)) @ torch.tensor(self.weights_)).numpy()


def torch_models(folder: Path) -> None:
    import torch

    torch.manual_seed(1)
    dense = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)).eval()
    rows = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    mlflow.pytorch.save_model(dense, folder / "exported", input_example=rows, signature=_tensors((-1, 4), (-1, 3)))
    table = pd.DataFrame(rows.astype(float), columns=["a", "b", "c", "d"])
    mlflow.pytorch.save_model(
        dense, folder / "table", signature=infer_signature(table), input_example=table, serialization_format="pickle"
    )
    convolution = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(256, 5), torch.nn.Softmax(1),
    ).eval()  # fmt: skip
    images = np.linspace(0, 1, 128, dtype=np.float32).reshape(2, 1, 8, 8)
    mlflow.pytorch.save_model(
        convolution, folder / "images", input_example=images, signature=_tensors((-1, 1, 8, 8), (-1, 5)),
        serialization_format="pickle",
    )  # fmt: skip
    # Large enough that a call on the whole example starts torch's threads.
    wide = np.linspace(-1, 1, 256 * 256, dtype=np.float32).reshape(256, 256)
    layers = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).eval()
    mlflow.pytorch.save_model(
        layers, folder / "wide", input_example=wide, signature=_tensors((-1, 256), (-1, 1)),
        serialization_format="pickle",
    )  # fmt: skip
    mlflow.sklearn.save_model(
        Net().fit(wide, None), folder / "within-sklearn", input_example=wide, signature=_tensors((-1, 256), (-1, 1)),
        serialization_format="cloudpickle",
    )  # fmt: skip


def keras_models(folder: Path) -> None:
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(2)
    layers = [keras.layers.Input((4,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(3, "softmax")]
    network = keras.Sequential(layers)
    rows = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    signature = _tensors((-1, 4), (-1, 3))
    mlflow.tensorflow.save_model(network, folder / "tf-keras", signature=signature, input_example=rows)
    (folder / "keras").mkdir()  # MLflow itself only makes it after it has written the example into it
    mlflow.keras.save_model(network, str(folder / "keras"), signature=signature, input_example=rows)

    class Scale(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weights = tf.constant([[0.5, 1.5], [2.5, -3.5], [4.5, 5.5], [-6.5, 7.5]])

        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])  # type: ignore[untyped-decorator]
        def __call__(self, x: Any) -> Any:
            return tf.nn.sigmoid(x @ self.weights)

    mlflow.tensorflow.save_model(
        Scale(), folder / "tf-module", signature=_tensors((-1, 4), (-1, 2)), input_example=rows
    )


def text_models(folder: Path) -> None:
    import torch
    from tiny_llm import network, tokenizer
    from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertForTokenClassification
    from transformers import pipeline as whole

    words = tokenizer()
    words.add_special_tokens({"mask_token": "<mask>"})
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=512, max_position_embeddings=256, pad_token_id=2, num_labels=3, **sizes)
    torch.manual_seed(3)
    speaks = network(words, seed=3).float()
    pipelines = {
        "generates": ("text-generation", speaks, {"max_new_tokens": 6, "do_sample": False}),
        "classifies": ("text-classification", BertForSequenceClassification(config).eval(), {}),
        "tags": ("token-classification", BertForTokenClassification(config).eval(), {}),
        "fills": ("fill-mask", BertForMaskedLM(config).eval(), {}),
        "features": ("feature-extraction", speaks.model, {}),
    }
    for name, (task, model, options) in pipelines.items():
        example = [f"{text} <mask>" for text in TEXTS] if name == "fills" else TEXTS
        mlflow.transformers.save_model(
            whole(task, model=model, tokenizer=words), folder / name, input_example=example,
            model_config=options or None, pip_requirements=["transformers"],
        )  # fmt: skip
    for name, task in (("chats", "llm/v1/chat"), ("completes", "llm/v1/completions")):
        mlflow.transformers.save_model(
            whole("text-generation", model=speaks, tokenizer=words), folder / name, task=task,
            model_config={"do_sample": False, "max_new_tokens": 6}, pip_requirements=["transformers"],
        )  # fmt: skip
    _sentences(folder, words, config)


def _sentences(folder: Path, words: Any, config: Any) -> None:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertModel

    torch.manual_seed(4)
    at = folder / "bert"
    BertModel(config).save_pretrained(at)
    words.save_pretrained(at)
    inner = Transformer(str(at), max_seq_length=128)
    model = SentenceTransformer(modules=[inner, Pooling(32)], device="cpu")
    requirements = ["sentence-transformers"]
    mlflow.sentence_transformers.save_model(
        model, folder / "sentences", input_example=TEXTS, pip_requirements=requirements
    )
    mlflow.sentence_transformers.save_model(
        model, folder / "embeds", task="llm/v1/embeddings", pip_requirements=requirements
    )


def forecasts(folder: Path) -> None:
    import statsmodels.api as sm
    from prophet import Prophet
    from statsmodels.tsa.arima.model import ARIMA

    chance = np.random.default_rng(5)
    table = pd.DataFrame(chance.normal(size=(60, 3)), columns=["x1", "x2", "x3"])
    y = table @ [1.5, -2.0, 0.5] + chance.normal(size=60)
    for name, model in (
        ("ols", sm.OLS(y, table)),
        ("poisson", sm.GLM(chance.poisson(3, 60), table, family=sm.families.Poisson())),
    ):
        mlflow.statsmodels.save_model(
            model.fit(), folder / name, signature=infer_signature(table, y), input_example=table.head(3)
        )
    walk = pd.Series(np.cumsum(chance.normal(size=80)))
    steps = pd.DataFrame({"start": [70], "end": [84]})
    mlflow.statsmodels.save_model(
        ARIMA(walk, order=(1, 1, 1)).fit(), folder / "arima", signature=infer_signature(steps), input_example=steps
    )
    days = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=90), "y": walk.iloc[:60].to_list() + [0.5] * 30})
    ahead = pd.DataFrame({"ds": pd.to_datetime(["2024-04-01", "2024-04-03", "2024-05-09"])})
    for name, samples in (("prophet", 0), ("prophet-intervals", 100)):
        fitted = Prophet(uncertainty_samples=samples, n_changepoints=5).fit(days, seed=6)
        mlflow.prophet.save_model(
            fitted, folder / name, signature=infer_signature(ahead, fitted.predict(ahead)), input_example=ahead
        )


def chains(folder: Path) -> None:
    examples: dict[str, Any] = {
        "chain": {"topic": "harbours"},
        "chain-texts": ["harbours", "rain"],
        "chain-messages": {"messages": [{"role": "user", "content": "harbours"}]},
    }
    for name, example in examples.items():
        code = folder / f"{name.replace('-', '_')}.py"
        code.write_text(f"from deep_chains import set_up\n\nset_up({name!r})\n")
        mlflow.langchain.save_model(
            str(code), folder / name, input_example=example, pip_requirements=["langchain"],
            code_paths=[str(LAB / "deep_chains.py")],
        )  # fmt: skip


def _tensors(takes: tuple[int, ...], gives: tuple[int, ...]) -> ModelSignature:
    single = np.dtype(np.float32)
    return ModelSignature(Schema([TensorSpec(single, takes)]), Schema([TensorSpec(single, gives)]))


KINDS: dict[str, Callable[[Path], None]] = {
    "torch": torch_models,
    "keras": keras_models,
    "text": text_models,
    "forecasts": forecasts,
    "chains": chains,
}

if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    KINDS[sys.argv[1]](Path(sys.argv[2]))
