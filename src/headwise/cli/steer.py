"""`headwise steer`: steers a language model towards one kind of statement."""

from typing import Annotated

from headwise import steering
from headwise.cli.common import Json, model_option, show
from headwise.steering import Steer
from headwise.tasks import TaskSource


def steer(
    source: TaskSource,
    settings: Steer,
    model: Annotated[str, model_option("A left-to-right language model: a folder, hub id or GGUF file.")],
    as_json: Json = False,
) -> None:
    """Finds the heads that tell statements apart and steers them: a table of strength against effect, and a
    steered model.

    headwise steer --model gpt2 --tasks-file truth.toml --tasks statements pairs --target true --out
    runs/truth
    """
    result = steering.steer(model, source.find(), **settings.given() | {"quiet": settings.quiet or as_json})
    show(result.section(), as_json, settings.out)
