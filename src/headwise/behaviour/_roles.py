"""`headwise.roles`: what every head does."""

from typing import Any

from headwise.behaviour._head_roles import HeadRoles, keep
from headwise.behaviour._settings import Roles
from headwise.behaviour._sources import TABLES, rows_of, texts_of
from headwise.settings import operation
from headwise.store import Entry, decision, kept


@operation(Roles)
def roles(model: Any, tokenizer: Any = None, settings: Roles = ...) -> HeadRoles:  # type: ignore[assignment]
    """What each head does: a score for every role, beside the level of a head that does nothing of the kind.

    Shares of attention are Σ(A⊙P) ÷ ΣA of each text, mean over texts, as TransformerLens' `detect_head` has
    it (error measure "mul"): P is 1 for the query i and the key j where, with tokens t,

    - previous token: j = i − 1;
    - duplicate token: j < i and t_j = t_i;
    - induction: 1 ≤ j ≤ i and t_(j−1) = t_i, with j − 1 < i.

    Chance is what attention has that is spread evenly over all that the query may see; for eigenvalue scores
    0; for compositions the mean over random rotations of the residual stream between the two heads.

    Args:
        model: a transformers model, a folder or hub id of one, or a folder that headwise saved.
        tokenizer: its tokenizer; default: the one saved with its weights.

    Returns:
        (role, layer, head), with chance levels as the coordinate `chance` (role, layer), the layers' `kind`,
        and settings and notes in `.attrs`. NaN where a role is not defined; `notes` says why. `.section()`
        describes them.
    """
    out = settings.out
    if out is None:
        return _measure(model, tokenizer, settings)
    settings = _with_contents(settings)

    def compute(entry: Entry) -> HeadRoles:
        return keep(_measure(model, tokenizer, settings), entry.folder, **entry.seals())

    decided = decision("roles", settings, model=model, tokenizer=tokenizer)
    scores, notes = kept(out, decided, compute)
    return scores.assign_attrs(stale=notes) if notes else scores


def _with_contents(settings: Roles) -> Roles:
    """The settings with what files hold in place of their names: results depend on it."""
    contents: dict[str, Any] = {}
    if settings.texts is not None:
        contents["texts"] = texts_of(settings.texts, settings.examples, settings.seed)
    for name in TABLES:
        source = getattr(settings, name)
        if source is not None:
            contents[name] = rows_of(source, name)
    return settings.with_changes(**contents)


def _measure(model: Any, tokenizer: Any, settings: Roles) -> HeadRoles:
    from headwise.behaviour._measuring import measure  # with torch, which showing kept roles does not need

    return measure(model, tokenizer, settings)
