"""An embedder is chosen by name, by address or as a value."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from loom import Loom
from loom.cli.main import cli
from loom.errors import ChoiceError
from loom.providers.embedders import (
    EndpointEmbedder,
    StaticEmbedder,
    choose_embedder,
    find_local_choice,
    minilm,
)
from tests.shared import ROOT

search = import_module("loom.cli.request.search")  # the command has the name of its module


class OwnEmbedder:
    name = "own:1"
    dimensions = 2

    def embed(self, texts: list[str]) -> np.ndarray:
        return np.ones((len(texts), 2), np.float32)


def test_none_is_no_embedder() -> None:
    assert choose_embedder(None) is None
    assert choose_embedder("none") is None


def test_names_are_those_of_our_embedders() -> None:
    assert isinstance(choose_embedder("static"), StaticEmbedder)


def test_the_model_of_the_extra_is_chosen_by_name() -> None:
    pytest.importorskip("onnxruntime")
    minilm = pytest.importorskip("loom.providers.embedders.minilm")
    if minilm.find_spec("all_minilm_l6_v2") is None:
        pytest.skip("the extra embed is not installed")
    assert isinstance(choose_embedder("minilm"), minilm.MiniLMEmbedder)


def test_an_address_names_an_endpoint_and_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_EMBEDDER_KEY", "sk-secret")
    found = choose_embedder("http://127.0.0.1:9/v1#some/model")
    assert isinstance(found, EndpointEmbedder)
    assert found.name == "http://127.0.0.1:9/v1#some/model"
    assert found._key == "sk-secret"


def test_a_value_is_taken_as_it_is() -> None:
    own = OwnEmbedder()
    assert choose_embedder(own) is own
    endpoint = EndpointEmbedder("http://127.0.0.1:9/v1", "m")  # its size is not asked for here
    assert choose_embedder(endpoint) is endpoint


@pytest.mark.parametrize(
    "choice",
    ["", "statik", "https://host/v1", "https://host/v1#", "#model", 7, object(), ["static"]],
)
def test_anything_else_is_refused_with_what_there_is(choice: object) -> None:
    with pytest.raises(ChoiceError, match=r"'static', 'minilm', 'none', 'https://HOST/v1#MODEL'"):
        choose_embedder(choice)  # type: ignore[arg-type]


def test_the_program_of_the_page_on_embedders_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "embedders.md").read_text()
    found = re.search(r"```python\n(.*?)```\n```\n(.*?)```", page, re.DOTALL)
    assert found
    exec(compile(found[1], "embedders.md", "exec"), {})
    assert capsys.readouterr().out == found[2]


def test_a_session_is_searched_by_meaning_with_an_embedder_chosen_by_name(tmp_path: Path) -> None:
    said = [
        "My dog is ill since Monday.",
        "The invoice was paid.",
        "We painted the kitchen.",
        "The train to Berlin leaves at nine.",
        "Her brother studies law.",
        "Please send the report to the board.",
        "The concert was sold out.",
        "It rained during the whole match.",
        "The server needs more memory.",
        "They moved to a larger flat.",
    ]
    with Loom.open(tmp_path / "kept.db", embedder="static") as kept:
        session = kept.new()
        for text in said:
            session.append({"role": "user", "content": text})
        kept.index()
        hits = session.search("sick puppy")
    assert [hit.text for hit in hits][:1] == said[:1]
    assert "near in meaning" in hits[0].reason


def test_an_embedder_that_there_is_not_is_refused_when_a_store_is_opened(tmp_path: Path) -> None:
    with pytest.raises(ChoiceError, match="no embedder is called"):
        Loom.open(tmp_path / "kept.db", embedder="statik")


def test_the_choice_for_stored_vectors_is_an_embedder_on_this_machine_or_none() -> None:
    assert find_local_choice(StaticEmbedder().name) == "static"
    assert find_local_choice("loom-static-256:of-another-version") == "static"
    assert find_local_choice(minilm.NAME) == "minilm"
    for name in ("https://host/v1#all-minilm-l6-v2", "own:1", ""):
        assert find_local_choice(name) == "none"


@pytest.mark.parametrize(
    ("made_with", "found_with"), [("static", "static"), (OwnEmbedder(), None)], ids=["ours", "own"]
)
def test_a_search_of_the_command_leaves_vectors_of_another_embedder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_with: Any, found_with: str | None
) -> None:
    path = tmp_path / "kept.db"
    with Loom.open(path, embedder=made_with) as kept:
        kept.new().append({"role": "user", "content": "The invoice was paid."})
        kept.index()
        name = kept.store.search.find_embedder_name(kept.scope)
    chosen: list[object] = []
    choose = search.choose_embedder
    monkeypatch.setattr(search, "choose_embedder", lambda one: chosen.append(one) or choose(one))
    done = CliRunner().invoke(cli, ["search", "invoice", "--store", str(path)])
    assert "The invoice was paid." in done.output
    assert chosen == [found_with or "none"]
    with Loom.open(path) as kept:
        assert kept.store.search.find_embedder_name(kept.scope) == name
