"""A project that knows what it decided: a goal, what was chosen and rejected, a change of mind."""

import asyncio

import loom


async def main() -> None:
    async with await loom.Loom.aopen(":memory:") as home:
        session = home.new("Login", model="gpt-4o")
        decisions = session.decisions
        goal = await decisions.alog("Add authentication to the API", kind="goal", confidence=85)
        jwt = await decisions.alog(
            "Use JWT tokens",
            parent=goal.id,
            edge="chosen",
            rationale="no state on the server",
        )
        await decisions.alog(
            "Use cookies",
            kind="option",
            parent=goal.id,
            edge="rejected",
            rationale="needs sticky sessions",
        )
        action = await decisions.alog(
            "Write the middleware", kind="action", parent=jwt.id, commits=["4fd1c2e"]
        )
        await decisions.alog("The load test fails", kind="outcome", parent=action.id)
        pivot = await decisions.apivot(
            jwt.id, "Tokens cannot be revoked", "Use opaque tokens", confidence=70
        )

        # A later session of the same project knows it too.
        later = home.new("Tokens", model="gpt-4o")
        context = await later.prepare("How do we authenticate users of the API?")
        print(context.openai()["messages"][-1]["content"], "\n")

        print(await decisions.awrite_up(goal.id))
        print(await decisions.amermaid(goal.id))
        pulse = await decisions.apulse()
        print("health:", pulse.health, "gaps:", [each.title for each in pulse.gaps.decisions])
        print("found:", [each.title for each in await decisions.asearch("tokens")])
        assert (await decisions.adecision(jwt.id)).status == "superseded"
        assert pivot.edge.target == pivot.decision.id


asyncio.run(main())
