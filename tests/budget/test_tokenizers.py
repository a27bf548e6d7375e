"""Exact counting: known ids, untrusted text, and the table from models to encodings."""

import pytest

from loom.budget.tokenizers import encoding_for, tokenizer


@pytest.mark.parametrize(
    ("encoding", "tokens"),
    [
        ("o200k_base", 8),
        ("cl100k_base", 9),
        ("llama3", 9),
        ("qwen3", 9),
        ("deepseek_v3", 8),
        ("gemma3", 8),
    ],
)
def test_a_text_has_the_tokens_its_vocabulary_gives(encoding: str, tokens: int) -> None:
    assert abs(tokenizer(encoding)("Hello world, def foo(self): 我们") - tokens) <= 2


def test_special_tokens_spelled_out_are_plain_text() -> None:
    assert tokenizer("o200k_base")("<|endoftext|>") > 1
    assert tokenizer("o200k_base")("<|think|>") > 1


def test_half_of_a_surrogate_pair_is_replaced() -> None:
    assert tokenizer("o200k_base")("a\ud800b") == tokenizer("o200k_base")("a\ufffdb")
    assert tokenizer("o200k_base")("\ud83d\ude00") == tokenizer("o200k_base")("😀")


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o", "o200k_base"),
        ("openai:gpt-4.1-mini", "o200k_base"),
        ("gpt-5.1-codex", "o200k_base"),
        ("openai/o3-mini", "o200k_base"),
        ("openai:gpt-4-turbo", "cl100k_base"),
        ("gpt-3.5-turbo-0125", "cl100k_base"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3"),
        ("us.meta.llama3-1-70b-instruct-v1:0", "llama3"),
        ("llama3:8b", "llama3"),
        ("openrouter/qwen/qwen-2.5-72b-instruct", "qwen3"),
        ("deepseek:deepseek-chat", "deepseek_v3"),
        ("glm-4.6", "glm4"),
        ("moonshotai/kimi-k2", "kimi_k2"),
        ("mistral-large-latest", "mistral_v3"),
        ("gemma-3-27b-it", "gemma3"),
        ("phi-4", "phi4"),
        ("anthropic:claude-sonnet-4-6", ""),
        ("gemini-2.5-pro", ""),
        ("unknown:model", ""),
        ("", ""),
    ],
)
def test_a_model_name_leads_to_its_encoding(model: str, encoding: str) -> None:
    assert encoding_for(model) == encoding


@pytest.mark.parametrize(
    "encoding",
    [
        "codellama",
        "llama2",
        "glm4",
        "kimi_k2",
        "kimi_k3",
        "mistral_v1",
        "mistral_v2",
        "mistral_v3",
        "gemma2",
        "phi4",
        "olmo2",
    ],
)
def test_every_encoding_in_the_table_is_in_the_wheel(encoding: str) -> None:
    assert tokenizer(encoding)("hello world") > 0
