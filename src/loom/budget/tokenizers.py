"""Exact tokenizers that work offline, and which model uses which."""

import re
from collections.abc import Callable
from functools import cache

from splintr import Tokenizer

# Model families by the beginning of their name, the first match wins; "" where the vocabulary is
# not public or not at hand.
# Claude, Gemini, Grok, Command and Nova publish none. What the wheel lacks (Llama 4, Qwen 3.5, Phi
# 3) is left to the estimate.
ENCODINGS: tuple[tuple[str, str], ...] = (
    (r"gpt-oss", "o200k_base"),
    (
        r"(chat)?gpt-(4o|4\.\d|[5-9]|\d\d)|chatgpt-4o|o\d|codex|computer-use|gpt-(audio"
        r"|realtime|image)",
        "o200k_base",
    ),
    (r"gpt-(4|3\.5|35)|text-embedding-(3|ada)", "cl100k_base"),
    (r"(meta-)?llama-?4", ""),
    (r"(meta-)?(llama-?3|codellama-?3)", "llama3"),
    (r"codellama", "codellama"),
    (r"(meta-)?llama-?2|vicuna|tinyllama", "llama2"),
    (r"qwen-?3\.[5-9]|qwen-?[4-9]", ""),
    (r"qwen|qwq", "qwen3"),
    (r"deepseek-(v[4-9]|r[2-9])", ""),
    (r"deepseek", "deepseek_v3"),
    (r"(chat)?glm-?4", "glm4"),
    (r"kimi-k3", "kimi_k3"),
    (r"kimi|moonshot", "kimi_k2"),
    (r"mistral-(7b-(instruct-)?v0\.[12]|tiny)|mixtral-8x7b", "mistral_v1"),
    (r"mixtral-8x22b|mistral-7b|codestral-22b", "mistral_v2"),
    (
        r"mistral-(nemo|small|medium|large)|ministral|pixtral|codestral|devstral"
        r"|magistral|open-mistral-nemo",
        "mistral_v3",
    ),
    (r"gemma-?2", "gemma2"),
    (r"gemma-?3", "gemma3"),
    (r"gemma-?4", "gemma4"),
    (r"phi-?4", "phi4"),
    (r"olmo-?2", "olmo2"),
)
_VENDOR = re.compile(
    r"(?:(?:us|eu|apac|global)\.)?(?:meta|mistral|deepseek|qwen|openai|google|moonshot|zai)\."
)
_TABLE = tuple((re.compile(pattern), encoding) for pattern, encoding in ENCODINGS)


def encoding_for(model: str) -> str:
    """The encoding of a model by its bare or prefixed name, "" where no exact one is at hand."""
    # Names nest, from the outside in: openrouter/openai/gpt-4o, us.meta.llama3-1-70b-instruct-v1:0,
    # llama3:8b.
    for name in reversed(re.split(r"[/:]", model.lower())):
        bare = _VENDOR.sub("", name).replace("llama-v", "llama-")
        for pattern, encoding in _TABLE:
            if pattern.match(bare):
                return encoding
    return ""


def replace_surrogates(text: str) -> str:
    """A text that has a UTF-8 form. Half of a surrogate pair has none; providers replace it, and so
    does this.
    """
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@cache
def tokenizer(encoding: str) -> Callable[[str], int]:
    """How many tokens a text has, exactly; the vocabulary is loaded at the first call."""
    # Not `encode`: it would read markers such as <|endoftext|>, spelled out in a text, as one
    # special token.
    encode = Tokenizer.from_pretrained(encoding).encode_ordinary

    def count(text: str) -> int:
        try:
            return len(encode(text))
        except UnicodeEncodeError:
            return len(encode(replace_surrogates(text)))

    return count
