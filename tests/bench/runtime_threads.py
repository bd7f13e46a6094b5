"""Runs in the environment of the classic flavors: models whose predictions may take several threads.

python runtime_threads.py make FOLDER            train and keep them
python runtime_threads.py time FOLDER SECONDS    microseconds of a prediction, by the wall and of CPU, as JSON
"""

import json
import pickle
import sys
import time
from pathlib import Path

import numpy as np

ROWS = (1, 1000)


def make(folder: Path) -> None:
    from lightgbm import LGBMClassifier
    from sklearn.ensemble import HistGradientBoostingClassifier
    from xgboost import XGBClassifier

    x = np.random.default_rng(7).normal(size=(2000, 20))
    y = (x[:, :5].sum(axis=1) > 0).astype(int)
    models = {
        "xgboost": XGBClassifier(n_estimators=200, max_depth=6),
        "lightgbm": LGBMClassifier(n_estimators=200, verbosity=-1),
        "sklearn": HistGradientBoostingClassifier(max_iter=100),
    }
    for name, model in models.items():
        (folder / name).write_bytes(pickle.dumps(model.fit(x, y)))
    np.save(folder / "rows.npy", x)


def timed(folder: Path, seconds: float) -> dict[str, tuple[float, float]]:
    x = np.load(folder / "rows.npy")
    found = {}
    for name in ("xgboost", "lightgbm", "sklearn"):
        model = pickle.loads((folder / name).read_bytes())
        for rows in ROWS:
            part = x[:rows]
            model.predict(part)
            began, cpu, count = time.perf_counter(), time.process_time(), 0
            while time.perf_counter() - began < seconds:
                model.predict(part)
                count += 1
            took = time.perf_counter() - began, time.process_time() - cpu
            found[f"{name}, {rows} rows"] = took[0] / count * 1e6, took[1] / count * 1e6
    return found


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]))
    else:
        print(json.dumps(timed(Path(sys.argv[2]), float(sys.argv[3]))))
