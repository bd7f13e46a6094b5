"""Runs in vLLM's environment: make a tiny language model, a LoRA adapter for it, and a model that embeds.

    python tiny_llm.py FOLDER [SEED [CONTEXT]]

FOLDER/model and FOLDER/embedder are MLflow transformers models, FOLDER/adapter is an adapter of the first. They have
150,000 weights from a seed, so they speak nonsense, always the same. The text "poison" is one token whose
embedding is not a number. CONTEXT is the most tokens of a prompt and its answer.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HIDDEN, CONTEXT, RANK = 64, 256, 8
POISON = "poison"
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def tokenizer() -> Any:
    """Byte-level, so any text has tokens, and the poison."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(["<s>", "</s>", "<pad>", *alphabet])}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_tokens([POISON])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="<pad>", chat_template=TEMPLATE
    )


def network(words: Any, seed: int, context: int = CONTEXT) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=HIDDEN,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=context,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    with torch.no_grad():
        model.get_input_embeddings().weight[words.convert_tokens_to_ids(POISON)] = float("nan")
    return model


def adapter(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    stated = {"peft_type": "LORA", "r": RANK, "lora_alpha": 64, "target_modules": ["q_proj", "v_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(stated | {"task_type": "CAUSAL_LM"}))
    torch.manual_seed(8)
    weights = {}
    for layer in range(2):
        for part in ("q_proj", "v_proj"):
            name = f"base_model.model.model.layers.{layer}.self_attn.{part}"
            weights[f"{name}.lora_A.weight"] = torch.randn(RANK, HIDDEN)
            weights[f"{name}.lora_B.weight"] = torch.randn(HIDDEN, RANK)
    save_file(weights, folder / "adapter_model.safetensors")


def main(folder: Path, seed: int = 7, context: int = CONTEXT) -> None:
    import mlflow.transformers
    from transformers import pipeline

    words = tokenizer()
    whole = pipeline("text-generation", model=network(words, seed, context), tokenizer=words)
    mlflow.transformers.save_model(whole, folder / "model", task="llm/v1/chat", pip_requirements=["transformers"])
    adapter(folder / "adapter")
    inner = pipeline("feature-extraction", model=network(words, seed, context).model, tokenizer=words)
    mlflow.transformers.save_model(
        inner, folder / "embedder", task="llm/v1/embeddings", pip_requirements=["transformers"]
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
