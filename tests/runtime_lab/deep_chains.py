"""LangChain runnables whose language model is a few lines of Python: no network, no chance."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import mlflow
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda

_MEETING = threading.Barrier(2)


class Shouts(BaseChatModel):
    """Says what it hears in upper case, word by word where it is streamed; to "meet" it waits for another who does."""

    @property
    def _llm_type(self) -> str:
        return "shouts"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        if messages[-1].content == "meet":
            _MEETING.wait(60)
        said = AIMessage(content=str(messages[-1].content).upper(), id="said-1")
        return ChatResult(generations=[ChatGeneration(message=said)])

    def _stream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        for word in str(messages[-1].content).upper().split():
            yield ChatGenerationChunk(message=AIMessageChunk(content=word, id="said-1"))


def set_up(name: str) -> None:
    """Tell MLflow which chain a model's code stands for."""
    model = Shouts()
    chains = {
        "chain": ChatPromptTemplate.from_template("tell me of {topic}") | model | StrOutputParser(),
        "chain-texts": RunnableLambda(str) | model | StrOutputParser(),
        "chain-messages": model | StrOutputParser(),  # MLflow itself makes LangChain's messages of a chat
    }
    mlflow.models.set_model(chains[name])
