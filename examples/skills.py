"""Skills of a project: a list of all is in the first request, and the text of the one that it asks
for. The model loads another with a tool.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import loom
from loom.engine.tools import tools

SKILLS = {
    "release-notes": ("Write release notes from the commits since the last tag.", "Group them."),
    "pdf-forms": ("Fill in PDF forms and extract their fields.", "List the fields first."),
}


def write_skills(project: Path) -> None:
    for name, (about, text) in SKILLS.items():
        folder = project / ".claude" / "skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: {about}\n---\n\n{text}\n"
        )


async def main(project: Path) -> None:
    write_skills(project)
    with loom.Loom.open(":memory:") as home:
        session = home.new(tools=tools())
        context = await session.prepare(
            "Fill in this PDF form, please.", project=project, model="gpt-4o"
        )
        print(context.conversation.system[0].text, "\n")
        print(*context.report.notes, sep="\n")

        call = {
            "type": "function",
            "id": "call_1",
            "function": {"name": "load_skill", "arguments": '{"name": "release-notes"}'},
        }
        session.append({"role": "assistant", "content": None, "tool_calls": [call]})
        session.use(call)
        later = await session.prepare(project=project, model="gpt-4o")
        assert later.conversation.system == context.conversation.system
        print(later.openai()["messages"][-1]["content"])


with TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder)))
