"""Commands within a talk, such as `/context`. Each is a function here and a line in COMMANDS."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from loom.cli.agent.talk import SCRIPTED, Talk
from loom.cli.request.options import Subject
from loom.cli.request.weave import print_request
from loom.cli.terminal import clean, dim, plural, say
from loom.errors import ChoiceError
from loom.providers.http.presets import PRESETS


class SlashCommand(NamedTuple):
    """What a command does, and how it is written."""

    usage: str
    about: str
    run: Callable[[Talk, str], Awaitable[None]]


async def _context(talk: Talk, words: str) -> None:
    if talk.context is None:
        say("Nothing was sent yet.")
        return
    title = talk.session.row.title or talk.session.id
    print_request(Subject(title, "a session", "openai"), talk.context.report, "the model saw it")


async def _compact(talk: Talk, words: str) -> None:
    summary = await talk.session.summarize(talk.model)
    if not summary:
        say("There is nothing to summarize yet.")
        return
    say(f"Summarized. The next request uses it: {plural(len(summary), 'character')}.")


async def _recall(talk: Talk, words: str) -> None:
    if not words:
        raise ChoiceError("say which handle to recall, such as /recall ~abcd")
    for line in (await talk.session.arecall(words, plain=True)).splitlines():
        say(clean(line))


async def _pin(talk: Talk, words: str) -> None:
    if not words:
        raise ChoiceError("say what to pin: a handle or the id of a message, such as /pin ~abcd")
    changed = await talk.session.apin(words)
    say(f"{plural(changed, 'message')} pinned." if changed else "It was pinned already.")


async def _fork(talk: Talk, words: str) -> None:
    talk.session = await talk.session.afork(title=words)
    talk.context = None
    say(f"You are now in session {talk.session.id}. The old one is as it was.")


async def _undo(talk: Talk, words: str) -> None:
    """Go back to before the last message of the user. Nothing is deleted."""
    path = talk.session.path
    asked = path.nodes([path.end.request]) if path.end and path.end.request is not None else ()
    last = next(iter(asked), None)
    if last is None or last.depth == 0:
        say("There is no turn before the last one; /fork or a new talk begins again.")
        return
    await talk.session.aswitch(path[last.depth - 1].id)
    talk.context = None
    say(f"Went back to before the last turn. {plural(last.depth, 'message')} are left.")


async def _model(talk: Talk, words: str) -> None:
    if words:
        talk.use_model(words)
    say(f"The model is {talk.model_name}.")


async def _cost(talk: Talk, words: str) -> None:
    usage = talk.session.row.usage
    cached = f", {usage.cached:,} of them from a cache" if usage.cached else ""
    say(
        f"{usage.prompt:,} tokens read{cached}, {usage.completion:,} written; ${usage.cost:.4f} in "
        "this session"
    )


async def _help(talk: Talk, words: str) -> None:
    for command in COMMANDS.values():
        say(f"  {command.usage:<16} {dim(command.about)}")
    say(f"  {'/quit':<16} {dim('End the talk. The session stays: loom chat --session ID')}")


COMMANDS = {
    "/context": SlashCommand("/context", "Show what the model saw, and what not.", _context),
    "/compact": SlashCommand("/compact", "Summarize the older messages now.", _compact),
    "/recall": SlashCommand("/recall HANDLE", "Show what was left out under a handle.", _recall),
    "/pin": SlashCommand("/pin HANDLE", "Keep a message in every request.", _pin),
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
