"""Commands within a talk, such as `/context`. Each is a function here and a line in COMMANDS."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from loom.cli.agent.talk import SCRIPTED, Talk
from loom.cli.request.options import Subject
from loom.cli.request.weave import print_request
from loom.cli.terminal import clean, dim, plural, say, width, wrap_lines
from loom.errors import ChoiceError
from loom.providers.http.presets import PRESETS
from loom.stores import Node

USAGE_COLUMNS = 16


class SlashCommand(NamedTuple):
    """What a command does, and how it is written."""

    usage: str
    about: str
    run: Callable[[Talk, str], Awaitable[None]]


async def _context(talk: Talk, words: str) -> None:
    if talk.context is None:
        _say_sentence("Nothing was sent yet.")
        return
    title = talk.session.row.title or talk.session.id
    print_request(Subject(title, "a session", "openai"), talk.context.report, "the model saw it")


async def _compact(talk: Talk, words: str) -> None:
    summary = await talk.session.summarize(talk.model)
    if not summary:
        _say_sentence("There is nothing to summarize yet.")
        return
    _say_sentence(f"Summarized. The next request uses it: {plural(len(summary), 'character')}.")


async def _recall(talk: Talk, words: str) -> None:
    if not words:
        raise ChoiceError("say which handle to recall, such as /recall ~abcd")
    for line in (await talk.session.arecall(words, plain=True)).splitlines():
        say(clean(line))


async def _pin(talk: Talk, words: str) -> None:
    if not words:
        last = _find_request(talk)
        if last is None:
            raise ChoiceError("say what to pin: a handle or the id of a message, as in /pin ~abcd")
        words = last.id
    changed = await talk.session.apin(words)
    _say_sentence(f"{plural(changed, 'message')} pinned." if changed else "It was pinned already.")


async def _fork(talk: Talk, words: str) -> None:
    old = talk.session.id
    talk.session = await talk.session.afork(title=words)
    talk.context = None
    _say_sentence(f"You are now in session {talk.session.id}. Session {old} is as it was.")


async def _undo(talk: Talk, words: str) -> None:
    """Go back to before the last message of the user. Nothing is deleted."""
    last = _find_request(talk)
    if last is None:
        _say_sentence("There is no turn yet.")
        return
    talk.context = None
    if last.depth == 0:
        old, head = talk.session.id, talk.session.row.head
        system = "\n\n".join(message.text for message in head.system)
        talk.session = talk.loom.new("", model=head.model, system=system)
        _say_sentence(
            f"You are at the beginning, in session {talk.session.id}. Session {old} is as it was."
        )
        return
    await talk.session.aswitch(talk.session.path[last.depth - 1].id)
    _say_sentence(f"Went back to before the last turn. {plural(last.depth, 'message')} are left.")


def _find_request(talk: Talk) -> Node | None:
    """The last message of the user."""
    path = talk.session.path
    if path.end is None or path.end.request is None:
        return None
    return next(iter(path.nodes([path.end.request])), None)


async def _model(talk: Talk, words: str) -> None:
    if words:
        talk.use_model(words)
    _say_sentence(f"The model is {talk.model_name}.")


async def _cost(talk: Talk, words: str) -> None:
    usage = talk.session.row.usage
    cached = f", {usage.cached:,} of them from a cache" if usage.cached else ""
    _say_sentence(
        f"{usage.prompt:,} tokens read{cached}, {usage.completion:,} written; ${usage.cost:.4f} in "
        "this session"
    )


async def _help(talk: Talk, words: str) -> None:
    for command in COMMANDS.values():
        _say_command(command.usage, command.about)
    _say_command("/quit", "End the talk. The session stays: loom chat --session ID")


def _say_sentence(text: str) -> None:
    for line in wrap_lines(text, width()):
        say(line)


def _say_command(usage: str, about: str) -> None:
    """A command and what it does, in a column of its own."""
    first, *rest = wrap_lines(about, max(width() - USAGE_COLUMNS - 3, 20))
    say(f"  {usage:<{USAGE_COLUMNS}} {dim(first)}")
    for line in rest:
        say(f"  {'':<{USAGE_COLUMNS}} {dim(line)}")


COMMANDS = {
    "/context": SlashCommand("/context", "Show what the model saw, and what not.", _context),
    "/compact": SlashCommand("/compact", "Summarize the older messages now.", _compact),
    "/recall": SlashCommand("/recall HANDLE", "Show what was left out under a handle.", _recall),
    "/pin": SlashCommand("/pin [HANDLE]", "Keep a message (your last one) in every request.", _pin),
    "/fork": SlashCommand("/fork [TITLE]", "Continue in a second session.", _fork),
    "/undo": SlashCommand("/undo", "Go back to before the last turn.", _undo),
    "/model": SlashCommand("/model [NAME]", "Show the model, or talk to another one.", _model),
    "/cost": SlashCommand("/cost", "Show what this session has cost.", _cost),
    "/help": SlashCommand("/help", "Show these commands.", _help),
}
QUIT = ("/quit", "/exit")


async def run_slash(talk: Talk, line: str) -> None:
    """Run a command of a talk."""
    name, _, words = line.partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        raise ChoiceError(f"there is no command {clean(name)}; /help lists them")
    await command.run(talk, words.strip())


def is_slash(line: str) -> bool:
    """Whether a line is a command. A path, such as /etc/hosts, is not."""
    name = line.strip().partition(" ")[0]
    return name.startswith("/") and "/" not in name[1:] and "\n" not in line.strip()


def complete_slash(talk: Talk, line: str) -> list[str]:
    """What the last word of a line may become: a command, a handle, or a provider."""
    name, has_words, _ = line.lstrip().partition(" ")
    if not has_words:
        return [*COMMANDS, *QUIT] if name else []
    if name == "/model":
        return [SCRIPTED, *(f"{provider}:" for provider in PRESETS)]
    if name in ("/recall", "/pin") and talk.context is not None:
        return [handle for item in talk.context.report.items for handle in item.handles]
    return []
