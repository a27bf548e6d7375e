"""What providers say when a request is longer than the model's window, as a table.

Rules of this file:
- A row is whose words they are and what they say; groups name the window (`limit`) and the tokens
  counted (`asked` and `more`).
- Services that speak OpenAI's API often use its words too, so the provider is whose words they are,
  not who was asked.
- Words that only sound alike are none: a limit by the minute, a day or a purse, and an answer that
  was asked to be too long. But a request that alone is more than a minute allows is too long:
  waiting does not help.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from loom.conversation.canonical import to_json
from loom.errors import RequestTooLong

MAX_ERROR_CHARS = 20_000  # characters of an error that are looked at
MAX_CAUSES = 5  # errors of which one caused the next
_NUMBER = r"\d(?:[\d,_]{0,14}\d)?"
_WINDOW = r"\bcontext[ _](?:window|length|size|limit)\b"
_CODE = r"(?:^|(?:HTTP(?:/[\d.]+)?|error|exception|message|status|code)\W{1,4}(?:code\W{1,3})?)"


class Overflow(Struct, frozen=True):
    """A request was longer than the window. 0 where a number was not told; `asked` has the answer
    in it where that was counted.
    """

    provider: str
    limit: int = 0
    asked: int = 0


class Wording(Struct, frozen=True):
    """How a provider says it."""

    provider: str
    says: re.Pattern[str]


def _row(provider: str, says: str) -> Wording:
    for group in ("limit", "asked", "more"):
        says = says.replace(f"{{{group}}}", f"(?P<{group}>{_NUMBER})")
    return Wording(provider, re.compile(says, re.IGNORECASE))


# What names numbers comes before what does not; the first row that fits is taken. Backticks are
# taken out before.
WORDINGS: tuple[Wording, ...] = (
    _row(
        "vllm",
        r"maximum context length is {limit} tokens.{1,3}However, your request has {asked} input "
        r"tokens(?: plus {more})?",
    ),
    _row(
        "vllm",
        r"is too large: {more}\. .{0,30}context length is {limit} tokens and your request has "
        r"{asked} input tokens",
    ),
    _row(
        "vllm",
        r"length is {limit} tokens\. .{0,60}output tokens and your .{0,60}for a total of (?:at "
        r"least )?{asked} tokens",
    ),
    _row("vllm", r"prompt \(length {asked}\) is longer than the maximum model length of {limit}"),
    _row(
        "vllm",
        r"prompt \(total length {asked}\) is too long to fit into the model \(context length "
        r"{limit}\)",
    ),
    _row("vllm", r"prompt \({asked} tokens\) is too long and exceeds limit of {limit}"),
    _row(
        "openrouter",
        r"endpoint.s maximum context length is {limit} tokens\. However, you requested about "
        r"{asked} tokens",
    ),
    _row(
        "openai",
        r"context length is {limit} tokens.{1,3}however,? (?:you requested|your \w+ resulted in) "
        r"{asked} tokens",
    ),
    _row(
        "openai",
        r"Input tokens exceed the configured limit of {limit} tokens\. Your messages resulted in "
        r"{asked} tokens",
    ),
    _row("anthropic", r"prompt is too long: {asked} tokens > {limit} maximum"),
    _row(
        "anthropic",
        r"input length and max_tokens exceed context limit: {asked} \+ {more} > {limit}",
    ),
    _row(
        "google",
        r"input token count(?: \({asked}\))? exceeds the maximum number of tokens allowed(?: "
        r"\({limit}\))?",
    ),
    _row("google", r"input token count is {asked} but model only supports up to {limit}"),
    _row(
        "bedrock",
        r"Too many input tokens\. Max input tokens: {limit}, request input token count: {asked}",
    ),
    _row(
        "mistral",
        r"Prompt contains {asked} tokens.{1,99}too large for model with {limit} maximum context "
        r"length",
    ),
    _row("xai", r"maximum prompt length is {limit} but the request contains {asked} tokens"),
    _row(
        "cerebras",
        r"reduce the length of the messages or completion\. Current length is {asked} while limit "
        r"is {limit}",
    ),
    _row(
        "cohere",
        r"too many tokens: total number of tokens .{0,60}cannot exceed {limit} - received {asked}",
    ),
    _row(
        "cohere",
        r"too many tokens: .{0,60}size limit exceeded by \d+ tokens(?:.{0,60}limit for this model "
        r"is {limit} tokens)?",
    ),
    _row(
        "together",
        r"The input \({asked} tokens\) is longer than the model.s context length \({limit} "
        r"tokens\)",
    ),
    _row(
        "together",
        r"inputs tokens \+ max_new_tokens must be <= {limit}\. Given: {asked} inputs tokens and "
        r"{more} max_new",
    ),
    _row("together", r"inputs must have less than {limit} tokens\. Given: {asked}"),
    _row("ollama", r"prompt is too long: {asked}, model maximum context length: {limit}"),
    _row(
        "llama.cpp",
        r"request \({asked} tokens\) exceeds the available context size \({limit} tokens\)",
    ),
    _row(
        "llama.cpp",
        r"exceeds the available context "
        r"size(?=(?:.*?n_prompt_tokens\W{1,4}{asked})?)(?=(?:.*?n_ctx\W{1,4}{limit})?)",
    ),
    _row("llama.cpp", r"Requested tokens \({asked}\) exceed context window of {limit}"),
    _row(
        "lm studio",
        r"keep the first {asked} tokens when context the overflows\..{0,60}context length of only "
        r"{limit} tokens",
    ),
    _row("lm studio", r"Input length {asked} exceeds context length {limit}"),
    _row("copilot", r"prompt token count of {asked} exceeds the limit of {limit}"),
    _row("moonshot", r"exceeded model token limit: {limit}(?: \(requested: {asked}\))?"),
    _row(
        "replicate",
        r"input is too long\. Max input length is {limit} tokens, but you supplied {asked} tokens",
    ),
    _row("qwen", r"Range of input length should be \[\d+, {limit}\]"),
    _row("openai", r"maximum context length (?:is|of) {limit}"),
    _row("openai", r"exceeds the context window of this model"),
    # In characters: one text alone is too long. Names and ids have such a limit as well, and are no
    # matter of the window.
    _row("openai", r"(?:messages|input)\[\d+\]\.?\w*content\W.{0,20}string too long"),
    _row("anthropic", r"prompt is too long"),
    _row("anthropic", r"Request size exceeds model context window"),
    _row("anthropic", r"request_too_large|Request exceeds the maximum size"),
    _row("github", r"Request body too large for .{1,60} model\. Max size: {limit} tokens"),
    _row("google", r"Request payload size exceeds the limit: \d+ bytes"),
    _row("bedrock", r"Input is too long for requested model|Too many input tokens"),
    _row("bedrock", r"Input Tokens Exceeded|Number of input tokens exceeds maximum length"),
    _row("bedrock", r"Malformed input request: expected maxLength: \d+, actual: \d+"),
    _row("groq", r"reduce the length of the messages or completion"),
    _row("lm studio", r"tokens to keep from the initial prompt is greater than the context length"),
    _row("ollama", r"input length exceeds the (?:maximum )?context length"),
    _row("minimax", r"context window exceeds limit"),
    _row("z.ai", r"Prompt exceeds max length|model_context_window_exceeded"),
    _row("litellm", r"ContextWindowExceededError"),
    _row("openai", r"context_length_exceeded"),
    _row(
        "other",
        r"\b(?:exceed(?:s|ed|ing)?|longer than|larger than|too (?:long|large|big) for)\b.{0,40}"
        + _WINDOW,
    ),
    _row("other", _WINDOW + r" (?:was |is |has been )?(?:exceeded|overflow)"),
    _row(
        "other",
        r"\b(?:prompt|input|request|messages?)\b.{0,40}\bexceed(?:s|ed)?\b.{0,30}\btoken limit\b",
    ),
    _row("http", _CODE + r"413\b|\b(?:request|payload|content|entity) too large\b"),
)

# A request that alone has more tokens than a minute allows.
_MORE_THAN_A_MINUTE = (
    _row("groq", r"Request too large for model .{1,300}Limit {limit}, Requested {asked}\b"),
    _row("openai", r"Request too large for .{1,300}Limit {limit}, Requested {asked}\b"),
)

# These say that something else is used up: waiting or paying helps, a shorter request does so only
# by chance.
_ELSE = re.compile(
    r"\b(?:tokens?|requests?) per (?:min|hour|day|month)|\bTP[MD]\b|rate.?limit|throttl|too many "
    r"requests|quota"
    r"|please wait|try again in \d|daily|monthly|can only afford"
    rf"|{_CODE}429\b",
    re.IGNORECASE,
)
_ESCAPED = re.compile(r"\\+u([0-9a-f]{4})", re.IGNORECASE)
_SAID = ("message", "body", "type", "text", "content", "detail")
_STATUS = ("status_code", "http_status", "status", "code")


def read_overflow(error: object) -> Overflow | None:
    """Whether an error says that the request was longer than the model's window, and with what
    numbers.

    `error` is an exception of any SDK, a text, a parsed error body, or something with `status_code`
    and `body` or `response`.
    """
    if isinstance(error, RequestTooLong):
        return Overflow(error.provider, error.limit, error.asked)
    # A request that took too long or never arrived says nothing of its length, whatever words it
    # comes in.
    if isinstance(error, TimeoutError | ConnectionError):
        return None
    text = " ".join(" ".join(_words(error, MAX_CAUSES)).split()).replace("`", "")[:MAX_ERROR_CHARS]
    text = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
    overflow = _find_wording(_MORE_THAN_A_MINUTE, text)
    if overflow is not None and overflow.asked > overflow.limit:
        return overflow
    if _ELSE.search(text):
        return None
    return _find_wording(WORDINGS, text)


def _find_wording(wordings: Sequence[Wording], text: str) -> Overflow | None:
    for wording in wordings:
        if found := wording.says.search(text):
            told = {name: _number(digits) for name, digits in found.groupdict().items()}
            return Overflow(
                wording.provider, told.get("limit", 0), told.get("asked", 0) + told.get("more", 0)
            )
    return None


def _words(error: object, deep: int) -> Iterator[str]:
    """All that an error says, in its text, its fields, its response and what caused it."""
    match error:
        case None:
            return
        case str():
            yield error
        case bytes():
            yield error.decode(errors="replace")
        case Mapping() | Sequence():
            yield _json(error)
        case _:
            yield from _words_of_object(error, deep)


def _words_of_object(error: object, deep: int) -> Iterator[str]:
    for name in _STATUS:
        value = _field(error, name)
        if isinstance(value, int | str):
            yield f"status {value}."
    if isinstance(error, BaseException):
        yield f"{type(error).__name__}: {error_text(error)}"
    for name in _SAID:
        value = _field(error, name)
        if isinstance(value, str | bytes | Mapping | list):
            yield from _words(value, deep)
    if deep:
        yield from _words(_field(error, "response"), deep - 1)
        yield from _words(_field(error, "__cause__"), deep - 1)
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                yield from _words(inner, deep - 1)


def _field(error: object, name: str) -> object:
    try:
        return getattr(error, name, None)
    except Exception:  # a response of an SDK may refuse: not read yet, or closed
        return None


def error_text(error: object) -> str:
    """What an error says of itself; "" if it cannot."""
    try:
        return str(error)
    except Exception:  # an error of somebody else's may not be able to tell what it is
        return ""


def _json(value: object) -> str:
    try:
        return to_json(value)
    except (TypeError, ValueError, RecursionError):
        return error_text(value)


def _number(digits: str | None) -> int:
    if digits:
        return int(re.sub(r"\D", "", digits))
    return 0
