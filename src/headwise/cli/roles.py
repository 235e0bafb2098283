"""`headwise roles`: what every head of a model does."""

from typing import Annotated

from headwise import behaviour
from headwise.behaviour import Roles
from headwise.cli.common import Json, model_option, show
from headwise.settings import Settings, option


class Shown(Settings):
    """What is printed of the roles."""

    top: int = option(3, "Heads shown for each role.", ge=1)


def roles(
    settings: Roles,
    shown: Shown,
    model: Annotated[
        str, model_option("A transformers model, by folder or hub id, or a folder of `headwise train`.")
    ],
    as_json: Json = False,
) -> None:
    """Scores every head for every role and prints each role's strongest heads, next to the chance level.

    headwise roles --model gpt2 --roles induction previous-token --texts wiki.txt --out runs/gpt2-roles
    """
    result = behaviour.roles(model, None, **settings.given() | {"quiet": settings.quiet or as_json})
    show(result.section(shown.top), as_json, settings.out)
