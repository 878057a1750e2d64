"""`langchain-feedback index`: what is in an index, and what should be.

Everything only looks until it is told to `--apply`; what is applied is what was reviewed. Each
command ends with 0 if all is well or done, with 1 if there is something to look at, with 2 if
it failed.
"""

import typer

from langchain_feedback.cli.index_applying import Applying
from langchain_feedback.cli.index_changing import restore, retire
from langchain_feedback.cli.index_first import init
from langchain_feedback.cli.index_foldback import app as foldback
from langchain_feedback.cli.index_jobs import export, health, nightly, rebuild
from langchain_feedback.cli.index_looking import duplicates, suggest, verify
from langchain_feedback.cli.index_scoring import score
from langchain_feedback.cli.index_versions import app as versions
from langchain_feedback.cli.index_writing import sync

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="What is in an index, and what should be: looks only, until it is told to --apply.",
)

app.command()(init)
app.command()(score)
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
