"""Groups of commands that help whoever mistypes one."""

from difflib import get_close_matches

import click


class Group(click.Group):
    """A group that names the command nearest to one that does not exist."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        given = args[0]
        known = self.list_commands(ctx)
        if given not in known and not given.startswith("-"):
            near = get_close_matches(given, known, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]!r}?" if near else f"it is one of {', '.join(known)}"
            ctx.fail(f"there is no command {given!r}; {hint}")
        return super().resolve_command(ctx, args)
