"""Agent work that is made up, with statements that the user or the model makes once.

Three kinds that have only their form in common (agent_sessions.toml): a coding agent among commits
and source, an agent on call among logs and tables, an agent that reads documents. Tools print hex
words, dates, paths, addresses and tickets all the time. People phrase things in several languages,
in many short messages or in few long ones. The same arguments always make the same session.

Tune on TUNED_ON alone: the other kinds say whether it carries over.
"""

import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

Chat = dict[str, Any]

KINDS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
TUNED_ON = "coding"
SPEAKERS = ("user", "assistant")
SHAPES = ("hex", "ticket", "url", "name", "path", "decision")
NARRATED_SHARE = 0.7  # of the model's messages with calls, those with words beside them
PARALLEL_CALLS = (1, 1, 1, 2, 3)
JOINTS = (" ", " ", "\n", "\n\n")  # between a statement and what else its message says

_PLACEHOLDER = re.compile(r"\{(?:(\d+)\.\.(\d+)|hex(\d+)|(\w+))\}")


class Needle(NamedTuple):
    """A statement made once: who makes it, what is looked for in a request, and what a person would
    search for.

    The value of a decision is its whole sentence: there is no identifier in it.
    """

    speaker: str
    shape: str
    value: str
    sentence: str
    query: str
    place: int


class AgentSession(NamedTuple):
    messages: list[Chat]
    needles: list[Needle]


class Writer:
    """Writes a session of one kind, turn by turn."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = KINDS[kind]
        self.words: dict[str, list[str]] = self.kind["words"] | self.kind["value_words"]
        self.rng = Random(f"{kind} {seed}")
        self.messages: list[Chat] = [{"role": "system", "content": self.kind["system"]}]
        self.calls = 0
        # the places of the user's messages, of the model's words beside calls, and of its final
        # words of a turn
        self.requests: list[int] = []
        self.narrations: list[int] = []
        self.endings: list[int] = []

    def fill(self, template: str) -> str:
        """The template with each placeholder drawn anew."""
        return _PLACEHOLDER.sub(self.draw, template)

    def draw(self, found: re.Match[str]) -> str:
        low, high, digits, word = found.groups()
        if low:
            return str(self.rng.randint(int(low), int(high)))
        if digits:
            return f"{self.rng.getrandbits(4 * int(digits)):0{digits}x}"
        if word == "date":
            month, day = self.rng.randint(1, 12), self.rng.randint(1, 28)
            return f"20{self.rng.randint(22, 26)}-{month:02}-{day:02}"
        if word == "clock":
            return ":".join(f"{self.rng.randrange(end):02}" for end in (24, 60, 60))
        if word in self.words:
            return self.fill(self.rng.choice(self.words[word]))
        if word.lower() in self.words:
            return self.fill(self.rng.choice(self.words[word.lower()])).title()
        return found[0]

    def write(self, length: int) -> None:
        while len(self.messages) < length - 1:
            self.requests.append(len(self.messages))
            self.messages.append({"role": "user", "content": self.request()})
            for _ in range(self.rng.randint(*self.kind["turn"])):
                if len(self.messages) >= length - 5:
                    break
                self.write_exchange()
            self.endings.append(len(self.messages))
            words = self.fill(self.rng.choice(self.kind["endings"]))
            self.messages.append({"role": "assistant", "content": words})

    def request(self) -> str:
        if not self.endings:
            return str(self.kind["first"])
        if self.rng.random() < self.kind["short_share"]:
            return str(self.rng.choice(self.kind["short"]))
        number = self.rng.randint(*self.kind["wishes_taken"])
        wishes = self.rng.sample(self.kind["wishes"], number)
        return str(self.kind["joint"]).join(map(self.fill, wishes))

    def write_exchange(self) -> None:
        tools = self.rng.choices(self.kind["tools"], k=self.rng.choice(PARALLEL_CALLS))
        calls = []
        for tool in tools:
            self.calls += 1
            given = {name: self.fill(value) for name, value in tool["arguments"].items()}
            function = {"name": tool["name"], "arguments": json.dumps(given)}
            calls.append({"id": f"call_{self.calls}", "type": "function", "function": function})
        words = ""
        if self.rng.random() < NARRATED_SHARE:
            self.narrations.append(len(self.messages))
            words = self.fill(self.rng.choice(self.kind["narrations"]))
        self.messages.append({"role": "assistant", "content": words, "tool_calls": calls})
        for call, tool in zip(calls, tools, strict=True):
            result = {"role": "tool", "tool_call_id": call["id"], "name": tool["name"]}
            self.messages.append(result | {"content": self.print_result(tool)})

    def print_result(self, tool: dict[str, Any]) -> str:
        lines = [self.fill(tool["head"])] if "head" in tool else []
        number = self.rng.randint(*tool["count"])
        lines += [self.fill(self.rng.choice(tool["lines"])) for _ in range(number)]
        return "\n".join(lines)

    def plant(self, each: int) -> list[Needle]:
        """Statements of all shapes by both speakers, all over the session."""
        things = self.draw_things(2 * each * len(SHAPES))
        needles = []
        for speaker in SPEAKERS:
            shapes = [(shape, number) for shape in SHAPES for number in range(each)]
            self.rng.shuffle(shapes)
            places = self.choose_places(speaker, len(shapes))
            for (shape, number), place in zip(shapes, places, strict=True):
                needle = self.make_needle(speaker, shape, number, things.pop())
                needles.append(needle._replace(place=place))
                self.insert(needle.sentence, place)
        return needles

    def draw_things(self, number: int) -> list[str]:
        """What statements are about, no two about the same."""
        things: dict[str, None] = {}
        while len(things) < number:
            things[self.fill(self.rng.choice(self.kind["things"]))] = None
        return list(things)

    def choose_places(self, speaker: str, number: int) -> list[int]:
        """Of the model's statements half stand beside calls, half in final words."""
        if speaker == "user":
            return spread(self.requests, number, self.rng)
        half = number // 2
        chosen = spread(self.endings, half, self.rng)
        chosen += spread(self.narrations, number - half, self.rng)
        self.rng.shuffle(chosen)
        return chosen

    def make_needle(self, speaker: str, shape: str, number: int, thing: str) -> Needle:
        phrases = self.kind[speaker]
        frame = phrases[shape][number % len(phrases[shape])]
        if shape == "decision":
            actions, conditions = phrases["actions"], phrases["conditions"]
            action = actions[number % len(actions)]
            condition = conditions[(3 * number + number // len(actions)) % len(conditions)]
            sentence = frame.format(action=action, condition=condition)
            return Needle(speaker, shape, sentence, sentence, f"{action} {condition}", 0)
        value = self.fill(self.kind["values"][shape])
        sentence = frame.format(thing=thing, value=value)
        return Needle(speaker, shape, value, sentence, frame.format(thing=thing, value=""), 0)

    def insert(self, sentence: str, place: int) -> None:
        """Before or behind what a message says, on its line or on a line of its own."""
        words, joint = self.messages[place]["content"], self.rng.choice(JOINTS)
        before = self.rng.random() < 0.25
        texts = (sentence, words) if before else (words, sentence)
        self.messages[place]["content"] = joint.join(texts)


def spread(slots: Sequence[int], number: int, rng: Random) -> list[int]:
    """So many places among the slots, one in each stretch of them, in random order."""
    chosen = [slots[int((n + rng.random()) * len(slots) / number)] for n in range(number)]
    rng.shuffle(chosen)
    return chosen


def make_session(
    kind: str, length: int = 5_000, needles_each: int = 8, seed: int = 1
) -> AgentSession:
    """A session of one kind. `needles_each` is how many statements of each shape each speaker
    makes.
    """
    writer = Writer(kind, seed)
    writer.write(length)
    needles = writer.plant(needles_each)
    writer.messages.append({"role": "user", "content": writer.kind["last"]})
    return AgentSession(writer.messages, needles)
