"""Windows and prices: what seed 000 prints, how names resolve, and who wins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom import weave
from loom.budget.media import media_rule
from loom.budget.models import Figures, find, model, model_limit, read_overrides, wire_name
from loom.budget.tokenizers import encoding_for
from loom.dialects import DIALECTS
from loom.errors import ChoiceError


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("anthropic:claude-sonnet-4-6", 200_000),
        ("anthropic:claude-haiku-4-5", 200_000),
        ("anthropic:claude-opus-4-6", 200_000),
        ("openai:gpt-4-turbo", 128_000),
        ("openai:gpt-4o-mini", 128_000),
        ("unknown:model", 128_000),
        ("", 128_000),
        (None, 128_000),
    ],
)
def test_the_windows_that_the_seed_prints(name: str | None, window: int) -> None:
    assert model_limit(name) == window


@pytest.mark.parametrize(
    "name",
    [
        "claude-sonnet-4-6",
        "Claude-Sonnet-4-6",
        "anthropic:claude-sonnet-4-6",
        "anthropic/claude-sonnet-4-6",
        "anthropic/claude-sonnet-4.6",
        "openrouter/anthropic/claude-sonnet-4.6",
        "claude-sonnet-4-6-20260205",
        "claude-sonnet-4-6@20260205",
        "claude-sonnet-4-6-latest",
        "bedrock/us.anthropic.claude-sonnet-4-6-v1:0",
    ],
)
def test_one_model_has_many_spellings(name: str) -> None:
    found = model(name)
    assert (found.window, found.input is not None, found.known) == (200_000, True, True)


def test_a_model_has_prices_and_an_encoding() -> None:
    sonnet, four_o = model("claude-sonnet-4-6"), model("openai:gpt-4o-2024-08-06")
    assert (sonnet.input, sonnet.output, sonnet.cache_read, sonnet.cache_write) == (
        3.0,
        15.0,
        0.3,
        3.75,
    )
    assert (four_o.encoding, four_o.max_output, four_o.input) == ("o200k_base", 16_384, 2.5)
    assert model("nobody:knows").known is False


def test_the_user_s_figures_win_over_pins_and_snapshot() -> None:
    overrides = read_overrides(
        '[claude-sonnet-4-6]\nwindow = 1_000_000\n\n["mine:local"]\nwindow = 32768\ninput = 0.0\n'
    )
    sonnet = model("anthropic:claude-sonnet-4-6", overrides)
    assert (sonnet.window, sonnet.input) == (1_000_000, 3.0)
    assert model_limit("mine:local", overrides) == model_limit("mine/local", overrides) == 32_768
    assert model_limit("claude-sonnet-4-6") == 200_000
    assert model_limit("x", {"x": Figures(window=5)}) == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not toml", "the models file is not TOML"),
        ("[m]\nwindow = 'big'", "model 'm': Expected `int | null`"),
        ("[m]\nwidnow = 5", "model 'm': Object contains unknown field `widnow`"),
        ("[m]\nwindow = -5", "model 'm': figures must be positive"),
        ("m = 5", "model 'm': Expected `object`"),
    ],
)
def test_a_bad_models_file_is_one_clear_line(text: str, message: str) -> None:
    with pytest.raises(ChoiceError, match=message) as raised:
        read_overrides(text)
    assert "\n" not in str(raised.value)


def test_models_are_found_by_part_of_their_name_plain_ones_first() -> None:
    found = find("sonnet-4-6")
    assert found[0] == "claude-sonnet-4-6"
    assert len(find()) > 3000
    assert find("no such model") == ()
    assert "mine/local" in find("mine:", {"mine/local": Figures(window=1)})


@given(st.one_of(st.text(), st.text("ab0:/.@-v", max_size=30)))
def test_any_name_has_a_window(name: str) -> None:
    assert model_limit(name) > 0


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("anthropic:claude-sonnet-4-6", "claude-sonnet-4-6"),
        ("openai:gpt-4o", "gpt-4o"),
        ("OpenAI:gpt-4o", "gpt-4o"),
        ("openrouter:anthropic/claude-sonnet-4.5", "anthropic/claude-sonnet-4.5"),
        ("openrouter:deepseek/deepseek-r1:free", "deepseek/deepseek-r1:free"),
        ("ollama:llama3:8b", "llama3:8b"),
        ("mistral:mistral-large-latest", "mistral-large-latest"),
        (
            "bedrock:us.anthropic.claude-sonnet-4-20250514-v1:0",
            "us.anthropic.claude-sonnet-4-20250514-v1:0",
        ),
        ("openai:ft:gpt-4o:acme::id", "ft:gpt-4o:acme::id"),
        ("google-gla:gemini-2.5-pro", "gemini-2.5-pro"),
        # A colon, or a provider, that belongs to the name stays.
        ("llama3:8b", "llama3:8b"),
        ("mistral:7b", "mistral:7b"),
        ("mistral:latest", "mistral:latest"),
        ("mistral:7b-instruct-v0.3-q4_0", "mistral:7b-instruct-v0.3-q4_0"),
        ("ft:gpt-4o:acme::id", "ft:gpt-4o:acme::id"),
        ("deepseek/deepseek-r1:free", "deepseek/deepseek-r1:free"),
        ("anthropic/claude-sonnet-4.5", "anthropic/claude-sonnet-4.5"),
        (
            "arn:aws:bedrock:us-east-1:1:inference-profile/x",
            "arn:aws:bedrock:us-east-1:1:inference-profile/x",
        ),
        ("claude-sonnet-4-6", "claude-sonnet-4-6"),
        ("openai:", "openai:"),
        ("", ""),
    ],
)
def test_the_wire_gets_the_name_that_the_provider_knows(name: str, sent: str) -> None:
    assert wire_name(name) == sent
    for spelled in {name, sent} - {"", "openai:", "OpenAI:gpt-4o"}:
        assert encoding_for(spelled) == encoding_for(name), "counted the same"
        assert media_rule(spelled) == media_rule(name)


@pytest.mark.parametrize("wire", ["openai", "responses", "anthropic"])
def test_no_request_carries_the_notation_of_a_provider(wire: str) -> None:
    messages = [{"role": "user", "content": "hello"}]
    for name in ("anthropic:claude-sonnet-4-6", "ollama:llama3:8b", "openrouter:openai/gpt-4o"):
        body = {"model": name, "messages": messages}
        for context in (weave(messages, model=name), weave(DIALECTS["openai"].parse(body))):
            assert context.render(wire)["model"] == name.partition(":")[2]
            assert (context.report.model, context.report.window) == (name, model_limit(name))


def test_a_tuned_model_has_the_figures_of_what_it_was_made_from() -> None:
    assert (
        model_limit("ft:gpt-4o-2024-08-06:acme:shop:id1")
        == model_limit("gpt-4o-2024-08-06")
        == 128_000
    )
    assert model("ft:gpt-4o:acme::id").known
    assert model("openai:ft:gpt-4.1-mini-2025-04-14:acme::id").window == model_limit(
        "gpt-4.1-mini-2025-04-14"
    )
