"""Agents that answer from what they are asked alone: no network, no chance, no clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlflow.pyfunc import ChatAgent, ChatModel, PythonModel, ResponsesAgent
from mlflow.types.agent import ChatAgentChunk, ChatAgentMessage, ChatAgentResponse
from mlflow.types.llm import ChatChoice, ChatChoiceDelta, ChatChunkChoice, ChatCompletionChunk, ChatCompletionResponse
from mlflow.types.llm import ChatMessage as Message
from mlflow.types.responses import ResponsesAgentRequest, ResponsesAgentResponse, ResponsesAgentStreamEvent


class Replies(ResponsesAgent):  # type: ignore[misc]
    """Says the last item of the input in upper case, and what it was given beside it."""

    def predict(self, request: ResponsesAgentRequest) -> ResponsesAgentResponse:
        said = _said(request)
        item = self.create_text_output_item(text=said.upper(), id="item-1")
        return ResponsesAgentResponse(id="response-1", output=[item], custom_outputs=request.custom_inputs)

    def predict_stream(self, request: ResponsesAgentRequest) -> Iterator[ResponsesAgentStreamEvent]:
        said = _said(request)
        for word in said.split():
            yield ResponsesAgentStreamEvent(**self.create_text_delta(delta=word, item_id="item-1"))
        item = self.create_text_output_item(text=said.upper(), id="item-1")
        yield ResponsesAgentStreamEvent(type="response.output_item.done", item=item)


def _said(request: ResponsesAgentRequest) -> str:
    content = request.input[-1].model_dump()["content"]
    return content if isinstance(content, str) else "".join(str(part.get("text")) for part in content)


class Chats(ChatAgent):  # type: ignore[misc]
    """The same in the shape of a chat agent."""

    def predict(self, messages: list[ChatAgentMessage], context: Any = None, custom_inputs: Any = None) -> Any:
        said = str(messages[-1].content).upper()
        answer = ChatAgentMessage(role="assistant", content=said, id="message-1")
        return ChatAgentResponse(messages=[answer], custom_outputs=custom_inputs)

    def predict_stream(
        self, messages: list[ChatAgentMessage], context: Any = None, custom_inputs: Any = None
    ) -> Iterator[Any]:
        for number, word in enumerate(str(messages[-1].content).split()):
            yield ChatAgentChunk(delta=ChatAgentMessage(role="assistant", content=word, id=f"message-{number}"))


class Talks(ChatModel):  # type: ignore[misc]
    """The same in OpenAI's shape; it says its temperature, too."""

    def predict(self, context: Any, messages: list[Message], params: Any) -> Any:
        said = f"{str(messages[-1].content).upper()} at {params.temperature} of {params.max_tokens}"
        choice = ChatChoice(index=0, message=Message(role="assistant", content=said))
        return ChatCompletionResponse(choices=[choice], model="talks", created=1)

    def predict_stream(self, context: Any, messages: list[Message], params: Any) -> Iterator[Any]:
        for word in str(messages[-1].content).split():
            delta = ChatChoiceDelta(role="assistant", content=word)
            yield ChatCompletionChunk(choices=[ChatChunkChoice(index=0, delta=delta)], created=1)


class Embeds(PythonModel):  # type: ignore[misc]
    """How long a text is and how many words it has, in the shape of OpenAI's embeddings."""

    def predict(self, context: Any, model_input: Any, params: Any = None) -> Any:
        texts = model_input["input"]
        texts = [texts] if isinstance(texts, str) else list(texts)
        vectors = [[float(len(text)), float(len(text.split()))] for text in texts]
        data = [{"object": "embedding", "index": index, "embedding": one} for index, one in enumerate(vectors)]
        return {"object": "list", "data": data, "model": "", "usage": {"prompt_tokens": 0, "total_tokens": 0}}
