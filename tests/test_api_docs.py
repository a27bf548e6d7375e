"""The page on the Python API is complete and current, and words of origin stand on one page
only.
"""

import importlib.util
import re
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner

import loom
from loom.cli.main import cli
from tests.shared import ROOT
from tests.test_cli_help import every_command

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def api() -> ModuleType:
    spec = importlib.util.spec_from_file_location("api", ROOT / "scripts" / "api.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_api_page_is_what_the_docstrings_say(api: ModuleType) -> None:
    if api.PAGE.read_text() != api.write_page():
        pytest.fail(f"docs/api.md is out of date; run: {api.COMMAND}")


def test_every_field_and_method_on_the_api_page_is_described(api: ModuleType) -> None:
    for name in api.NAMES:
        found = getattr(loom, name)
        assert (found.__doc__ or "").strip(), name
        if isinstance(found, type):
            for entry in (*api.read_fields(found), *api.read_members(found)):
                assert entry.text.strip(), f"{name}.{entry.name} has no description"


@pytest.mark.parametrize(
    "verb", [loom.weave, loom.Session.prepare, loom.LoomTree.prepare, loom.Loom.open]
)
def test_every_option_on_the_api_page_is_described(api: ModuleType, verb: Any) -> None:
    page = api.write_page()
    function = getattr(verb, "__func__", verb)
    options = list(api.read_options(function))
    assert options
    for option in options:
        assert option.text, f"{option.name} has no description"
        assert f"- `{option.form}`: {option.text}\n" in page


def test_signatures_on_the_api_page_name_no_modules(api: ModuleType) -> None:
    forms = re.findall(r"```python\n(.*?)```", api.write_page(), re.DOTALL)
    assert not [form for form in forms if "loom." in form or "typing." in form]


def test_the_index_leads_to_every_page() -> None:
    text = (DOCS / "index.md").read_text()
    for page in DOCS.glob("*.md"):
        assert page.name == "index.md" or f"({page.name})" in text, page.name


ORIGIN = re.compile(r"\b[Ss]eeds? (?:00\d|says?|prints?|has)|\bseed's\b")


def test_origins_are_named_on_one_page_only() -> None:
    pages = [ROOT / "README.md", *(page for page in DOCS.glob("*.md") if page.name != "seeds.md")]
    for page in pages:
        assert not ORIGIN.search(page.read_text()), page.name


@pytest.mark.parametrize("words", [*every_command()], ids=" ".join)
def test_no_help_names_an_origin(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, [*words, "--help"], prog_name="loom")
    assert not ORIGIN.search(click.unstyle(done.output))


def test_the_glossary_explains_every_word_of_the_architecture() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    words = re.findall(
        r"^\| ([a-z, ]+) \|", page.partition("## Words")[2].partition("\n## ")[0], re.MULTILINE
    )
    known = (DOCS / "glossary.md").read_text()
    for word in ", ".join(words[1:]).split(", "):
        assert re.search(rf"^\| [^|]*\b{word}\b", known, re.MULTILINE), (
            f"docs/glossary.md does not explain {word!r}"
        )


def slug(heading: str) -> str:
    """The anchor that a heading gets in a rendered page."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def test_links_lead_to_headings_that_exist() -> None:
    for page in (ROOT / "README.md", *DOCS.glob("*.md")):
        for target, anchor in re.findall(r"\]\(([\w./-]*?\.md)?#([\w-]+)\)", page.read_text()):
            text = (page.parent / target if target else page).read_text()
            headings = {slug(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
            assert anchor in headings, f"{page.name}: {target}#{anchor}"
