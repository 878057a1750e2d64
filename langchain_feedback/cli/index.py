"""`langchain-feedback index`: what is in an index, and what should be.

No index changes without `--apply`, and what is applied is what was reviewed; but for a person's
word on an entry, and for a rollback, which is in a hurry. Each
command ends with 0 if all is well or done, with 1 if there is something to look at, with 2 if
it failed.
"""

import typer

from langchain_feedback.cli.index_allowing import allow
from langchain_feedback.cli.index_applying import Applying
from langchain_feedback.cli.index_changing import retire
from langchain_feedback.cli.index_first import init
from langchain_feedback.cli.index_foldback import app as foldback
from langchain_feedback.cli.index_jobs import export, health, nightly, rebuild
from langchain_feedback.cli.index_looking import duplicates, suggest, verify
from langchain_feedback.cli.index_restoring import restore
from langchain_feedback.cli.index_scoring import score
from langchain_feedback.cli.index_versions import app as versions
from langchain_feedback.cli.index_writing import sync

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="What is in an index, and what should be. No index changes without --apply, but by "
    "somebody's word: `allow`, `foldback approve`, `foldback reject`, `versions rollback`.",
)

app.command()(init)
app.command()(score)
app.command()(allow)
app.command()(duplicates)
app.command()(suggest)
app.command()(verify)
app.command()(health)
app.command(cls=Applying)(sync)
app.command(cls=Applying)(retire)
app.command()(restore)
app.add_typer(foldback, name="foldback")
app.add_typer(versions, name="versions")
app.command()(nightly)
app.command()(export)
app.command()(rebuild)
