"""The `headwise` command: one file a verb, each a thin layer over the rooms."""

import sys
import warnings
from importlib import import_module
from itertools import chain

import typer

from headwise._base.names import legible
from headwise._base.progress import own_bars
from headwise.cli.common import Group, fail, keep_output
from headwise.cli.verbs import verb
from headwise.errors import HeadwiseError, Interrupted

SECTIONS = {
    "First steps": {
        "demo": "the heads that matter in two small models, and a report",
        "inspect": "every attention layer of a model, and what it is made of",
        "app": "a page to silence heads by hand and watch predictions change",
    },
    "Which heads each task needs": {
        "score": "score every head for every task",
        "dissociate": "silence each task's heads and see what every task loses",
    },
    "Training with important heads": {
        "train": "train on many tasks: important-head training and other methods",
        "transfer": "fine-tune trained models on a few examples of new tasks",
        "similarity": "how similar tasks are, and whether similar tasks dissociate less",
        "stemcells": "does multi-task training harm the heads that all tasks claim?",
    },
    "What each head knows": {
        "probe": "a probe on every head and layer; last, best, top-n heads",
        "roles": "what every head does: induction, copying, sinks, retrieval",
    },
    "Putting findings to use": {
        "steer": "steer a language model towards one kind of statement",
        "eval": "lm-evaluation-harness on a changed and on the intact model",
    },
    "Studies and results": {
        "study": "run a recipe, resume it, show, check, export",
        "report": "one HTML file, or figures and tables for a paper",
    },
}
# a verb is the function of its name in the module of its name, if not here; a group of verbs has
# `register(app)`
FUNCTIONS = {"app": "live.serve", "eval": "eval.evaluate"}


class Root(Group):
    """The verbs, by the question they answer."""

    sections = SECTIONS


ABOUT = (
    "The attention heads of Hugging Face transformers: which heads tasks need, what each head knows, how to "
    "train with that knowledge."
)
app = typer.Typer(
    name="headwise",
    cls=Root,
    help=ABOUT,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help fits a screen; boxes do not
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(help=ABOUT)
def root(debug: bool = typer.Option(False, "--debug", help="Show the full traceback of an error.")) -> None:
    own_bars()


for _verb in chain.from_iterable(SECTIONS.values()):
    _module_name, _, _function_name = FUNCTIONS.get(_verb, f"{_verb}.{_verb}").partition(".")
    _module = import_module(f"headwise.cli.{_module_name}")
    if hasattr(_module, "register"):
        _module.register(app)
    else:
        verb(app, _verb, getattr(_module, _function_name))


def main() -> None:
    """Entry point: errors that a user can fix are one line and exit status 2, others status 1; a traceback
    comes only with --debug."""
    debug = "--debug" in sys.argv
    if not debug:
        warnings.formatwarning = lambda message, *_, **__: f"warning: {legible(str(message))}\n"
    if "--json" in sys.argv:
        keep_output()
    try:
        app()
    except Interrupted as stop:
        after = "\n" if sys.stderr.isatty() else ""  # ^C stands at the start of the line
        sys.stderr.write(f"{after}{stop}\n")
        raise SystemExit(130) from None
    except HeadwiseError as error:
        if debug:
            raise
        fail(str(error))
    except Exception as error:
        if debug:
            raise
        fail(
            f"{type(error).__name__}: {error} (unexpected error; rerun with `headwise --debug …` for the "
            "traceback)",
            status=1,
        )
