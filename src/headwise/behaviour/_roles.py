"""`headwise.roles`: what every head does."""

from typing import Any

from headwise.behaviour._files import keep
from headwise.behaviour._given import TABLES, given_rows, given_texts
from headwise.behaviour._section import HeadRoles
from headwise.behaviour._settings import Roles
from headwise.settings import operation
from headwise.store import decision, kept


@operation(Roles)
def roles(model: Any, tokenizer: Any = None, settings: Roles = ...) -> HeadRoles:  # type: ignore[assignment]
    """What each head does: a score for every role, beside the level of a head that does nothing of the kind.

    Shares of attention are Σ(A⊙P) ÷ ΣA of each text, mean over texts, as TransformerLens' `detect_head` has it (error measure "mul"):
    P is 1 for the query i and the key j where, with tokens t,

    - previous token: j = i − 1;
    - duplicate token: j < i and t_j = t_i;
    - induction: 1 ≤ j ≤ i and t_(j−1) = t_i, with j − 1 < i.

    Chance is what attention has that is spread evenly over all that the query may see; for eigenvalue scores 0; for compositions the
    mean over random rotations of the residual stream between the two heads.

    Args:
        model: a transformers model, a folder or hub id of one, or a folder that headwise saved.
        tokenizer: its tokenizer; default: the one saved with its weights.

    Returns:
        (role, layer, head), with chance levels as the coordinate `chance` (role, layer), the layers' `kind`, and settings and notes in
        `.attrs`. NaN where a role is not defined; `notes` says why. `.section()` describes them.
    """
    out = settings.out
    if out is None:
        return _measured(model, tokenizer, settings)
    settings = settings.with_changes(**_contents(settings))
    decided = decision("roles", settings, model=model, tokenizer=tokenizer)
    found, notes = kept(
        out, decided, lambda entry: keep(_measured(model, tokenizer, settings), entry.folder, **entry.seals())
    )
    return found.assign_attrs(stale=notes) if notes else found


def _contents(settings: Roles) -> dict[str, Any]:
    """What files hold, instead of their names: results depend on it."""
    found: dict[str, Any] = {}
    if settings.texts is not None:
        found["texts"] = given_texts(settings.texts, settings.examples, settings.seed)
    for name, columns in TABLES.items():
        if (given := getattr(settings, name)) is not None:
            found[name] = given_rows(given, columns, name)
    return found


def _measured(model: Any, tokenizer: Any, settings: Roles) -> HeadRoles:
    """Roles that are not there yet."""
    from headwise.behaviour._measuring import measured
    from headwise.heads import Heads, twinned
    from headwise.models import open_with_tokenizer

    live, tokenizer = open_with_tokenizer(model, settings, tokenizer)
    with twinned(live, settings.heads or Heads(live)) as (twin, heads):
        return HeadRoles(measured(twin, tokenizer, heads, settings))
