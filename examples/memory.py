"""An assistant that remembers: facts that change, notes that matter, and what was important."""

import asyncio

import loom


async def main() -> None:
    async with await loom.Loom.aopen(":memory:") as home:
        # For every session of the project, in every request.
        home.memory.remember("Prices are in euros", kind="fact", always=True)

        session = home.new("Travel", model="gpt-4o")
        [said] = session.append("I moved to Lyon last week, and I need a flight to Oslo.")
        paris = session.memory.remember("The user lives in Paris", kind="fact", about="home")
        session.memory.remember(
            "The user lives in Lyon",
            kind="fact",
            about="home",
            by="model",
            supersedes=paris.id,
            sources=[said.id],
        )
        session.append({"role": "assistant", "content": "I found a flight on Monday at nine."})

        context = await session.prepare("Where does the user live, and what does the flight cost?")
        for message in context.openai()["messages"]:
            print(f"{message['role']}: {message['content']}\n")

        print("history:", [(note.text, note.state) for note in session.memory.notes(history=True)])
        print("L1:", [item.text for item in session.memory.recent(2)])
        print("L2:", [(item.text, item.importance) for item in session.memory.important(2)])
        print("L4:", [hit.text for hit in home.memory.across("flight to Oslo", 1)])


asyncio.run(main())
