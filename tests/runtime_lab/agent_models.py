"""Runs in an environment with MLflow: log one agent of each kind.

python agent_models.py FOLDER
"""

import sys
import warnings
from pathlib import Path

import mlflow

CODE = Path(__file__).with_name("agents.py")


def main(folder: Path) -> None:
    from agents import Chats, Embeds, Replies, Talks

    for name, agent in (("responses", Replies()), ("chat-agent", Chats()), ("chat-model", Talks())):
        mlflow.pyfunc.save_model(folder / name, python_model=agent, pip_requirements=["mlflow"], code_paths=[str(CODE)])
    mlflow.pyfunc.save_model(
        folder / "embeds", python_model=Embeds(), pip_requirements=["mlflow"], code_paths=[str(CODE)],
        metadata={"task": "llm/v1/embeddings"},
    )  # fmt: skip


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main(Path(sys.argv[1]))
