"""Groups of commands that help whoever mistypes a command or an option."""

import re
from difflib import get_close_matches

import click


class Group(click.Group):
    """A group that names the command nearest to one that does not exist."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        given = args[0]
        known = self.list_commands(ctx)
        if given not in known and not given.startswith("-"):
            near = get_close_matches(given, known, n=1, cutoff=0.6)
            if near:
                hint = f"did you mean {near[0]!r}?"
            else:
                hint = f"it is one of {', '.join(known)}"
            ctx.fail(f"there is no command {given!r}; {hint}")
        return super().resolve_command(ctx, args)


_EXTRA = re.compile(r"unexpected extra arguments? \((.*)\)")


def name_unknown_option(error: click.UsageError) -> None:
    """Raise what click says of an option that does not exist, where it was taken for an argument
    instead.

    Commands that read `-#N` take all that they do not know for arguments.
    """
    found = _EXTRA.search(error.message)
    if found is None or error.ctx is None:
        return
    unknown = [word for word in found[1].split() if word.startswith("--")]
    if unknown:
        known = [
            name
            for param in error.ctx.command.params
            for name in param.opts
            if name.startswith("--")
        ]
        near = get_close_matches(unknown[0], known, n=1, cutoff=0.6)
        raise click.NoSuchOption(unknown[0], possibilities=near, ctx=error.ctx) from None
