"""`--apply`: what was reviewed is what runs, and a dry run says how to have it run."""

import re
import shlex
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from langchain_feedback.cli.shared import say, say_on_one_line, without_password

__all__ = [
    "Apply",
    "Applying",
    "Do",
    "again",
    "digest_option",
    "is_reviewed",
    "next_step",
    "other",
    "with_place",
]

Apply = Annotated[
    str | None,
    typer.Option(
        "--apply",
        metavar="DIGEST",
        help="Do what was reviewed, or for a job at night `now`: whatever it is, reviewed by "
        "nobody. Without it, nothing changes.",
    ),
]
Do = Annotated[bool, typer.Option("--apply", help="Do it; without it, nothing changes.")]

_NOW = "now"
_HIDDEN = ":***@"
_LEFT_OUT = ("apply", "as_json", "limit")
_PLACE = ("database", "namespace", "index")
_COMMAND = re.compile("`langchain-feedback index ([a-z -]+)`")
_LEAST_DIGEST = 12
"""Characters of a digest that are shown and asked for; no two plans share them by chance."""


class Applying(TyperCommand):
    """A command whose `--apply` may come without its digest, to be told which one it needs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give a lone `--apply` an empty value."""
        given: list[str] = []
        for at, word in enumerate(args):
            given.append(word)
            rest = args[at + 1 :]
            if word == "--apply" and (not rest or rest[0].startswith("-")):
                given.append("")
        return list(super().parse_args(ctx, given))


def is_reviewed(given: str | None, digest: str, now: object, context: typer.Context) -> bool:
    """Return whether a plan is to be carried out: with the digest of what was reviewed.

    `now` stands for whatever it is: guards that need `--force` are not lifted by it.

    Args:
        given: What `--apply` came with; None: it did not come.
        digest: Of the plan as it would be now.
        now: That plan, in a line.
        context: Of the command.

    Raises:
        ValueError: If the digest is missing, or that of another plan.
    """
    if given is None:
        return False
    if given == _NOW:
        return True
    if not given:
        msg = (
            f"--apply takes the digest of what you reviewed. Now that would be {now}. If that is "
            f"what you want: {again(context, *digest_option(digest))}"
        )
        raise ValueError(msg)
    if len(given) < _LEAST_DIGEST or not digest.startswith(given.lower()):
        msg = (
            f"Nothing was changed: what would be done now is not the plan {given!r}, but {now}. "
            f"Review it first: {again(context)}"
        )
        raise ValueError(msg)
    return True


def digest_option(digest: str) -> tuple[str, str]:
    """Return the words that carry out a plan."""
    return "--apply", digest[:_LEAST_DIGEST]


def next_step(context: typer.Context, *more: str) -> None:
    """Print the command that carries out what was shown; some words are added to it."""
    command = again(context, *more)
    how = ", with the password in the place of ***" if _HIDDEN in command else ""
    say("")
    say(f"Nothing was changed. To apply it{how}:", "dim")
    say_on_one_line(command, "bold")


def again(context: typer.Context, *more: str) -> str:
    """Return the command as it was given, with more words, without what is only for the eye.

    A password in a database's address is left out: what is printed may end up in a log.
    """
    names: list[str] = []
    at: Any = context
    while at.parent is not None:
        names.insert(0, str(at.info_name))
        at = at.parent
    words = ["langchain-feedback", *names]
    for parameter in context.command.params:
        name = str(parameter.name)
        if name not in _LEFT_OUT and _is_given(context, name):
            words += _as_given(parameter, context.params[name])
    return shlex.join([*words, *more])


def other(context: typer.Context, command: str, *more: str) -> str:
    """Return another command of `index`, with the options of this one that say where.

    Args:
        context: Of this command.
        command: Its words after `langchain-feedback index`.
        more: Words that are added.
    """
    words = ["langchain-feedback", "index", *shlex.split(command)]
    for parameter in context.command.params:
        name = str(parameter.name)
        if name in _PLACE and _is_given(context, name):
            words += _as_given(parameter, context.params[name])
    return shlex.join([*words, *more])


def with_place(context: typer.Context, text: str) -> str:
    """Return a text of the library in which commands of `index` say where, as this one did."""
    return _COMMAND.sub(lambda found: f"`{other(context, found[1])}`", text)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _as_given(parameter: Any, value: Any) -> list[str]:
    if parameter.param_type_name == "argument":
        return [str(one) for one in (value if isinstance(value, list | tuple) else [value])]
    option = parameter.opts[0]
    if isinstance(value, bool):
        return [option if value else (parameter.secondary_opts or [option])[0]]
    values = value if isinstance(value, list | tuple) else [value]
    return [word for one in values for word in (option, without_password(str(one)))]
