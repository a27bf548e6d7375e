"""Short ways to make trees and to read what became of them."""

import asyncio
from collections.abc import Sequence
from typing import Any

from loom import Context, Loom, Message
from loom.conversation.tree import TreeHead
from loom.engine.trees import LoomTree
from loom.stores.tree.path import Node


def woven(tree: LoomTree, **wishes: Any) -> Context:
    wishes.setdefault("model", "gpt-4o")
    return asyncio.run(tree.prepare(**wishes))


def told(context: Context) -> list[tuple[str, str]]:
    """Who says what in a request."""
    return [(message.role, message.text) for message in context.conversation.messages]


def system(context: Context) -> str:
    return "\n".join(message.text for message in context.conversation.system)


def dialogue(loom: Loom, texts: Sequence[str], **head: Any) -> tuple[LoomTree, list[Node]]:
    """A tree in which a human and a model speak in turns."""
    tree = loom.new_tree("a talk", head=TreeHead(**head))
    nodes = [
        tree.say(text, role="user" if n % 2 == 0 else "assistant") for n, text in enumerate(texts)
    ]
    return tree, nodes


def buffer(loom: Loom, texts: Sequence[str], **head: Any) -> tuple[LoomTree, list[Node]]:
    tree = loom.new_tree("a text", head=TreeHead(mode="buffer", **head))
    return tree, [tree.say(text) for text in texts]


def said(role: Any, text: str) -> Message:
    from loom import Text

    return Message(role, (Text(text),))
