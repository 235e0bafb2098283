"""The `headwise` command: one file a verb, each a thin layer over the rooms."""

import sys
from importlib import import_module

import typer

from headwise.cli.common import fail
from headwise.errors import HeadwiseError

# One module of this package per verb; each has `register(app)`. Heavy imports stay inside the commands.
VERBS: tuple[str, ...] = (
    "demo",
    "inspect",
    "train",
    "study",
    "report",
    "live",
    "similarity",
    "transfer",
    "stemcells",
    "score",
    "dissociate",
    "probe",
)

app = typer.Typer(
    name="headwise",
    help="The attention heads of Hugging Face transformers: which ones each task needs, what they know, how to train with it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root(debug: bool = typer.Option(False, "--debug", help="Show the full traceback of an error.")) -> None:
    """The attention heads of Hugging Face transformers: which ones each task needs, what they know, how to train with it."""


for _verb in VERBS:
    import_module(f"headwise.cli.{_verb}").register(app)


def main() -> None:
    """Entry point: errors a user can mend are one line and exit status 2; a traceback comes only with --debug."""
    debug = "--debug" in sys.argv
    try:
        app()
    except HeadwiseError as error:
        if debug:
            raise
        fail(str(error))
