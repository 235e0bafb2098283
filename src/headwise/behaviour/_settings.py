"""The table of roles, and the settings of `headwise.roles`; without torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import field_validator

from headwise.errors import did_you_mean
from headwise.settings import HEADS, QUIET, SEED, Opening, option


@dataclass(frozen=True)
class Role:
    """One thing that a head may do.

    Attributes:
        family: what it is measured by; "answers" are function vectors.
        read: what the model reads for it; "random" are repeated random tokens.
        definition: in one line.
    """

    family: Literal["attention", "weights", "logits", "answers", "retrieval"]
    read: Literal["random", "text", "pairs", "needles", "documents", ""]
    definition: str


SINK = 0.3  # attention to the first token above which a query counts as sunk

_PREVIOUS = "share of attention on the token before the query"
_DUPLICATE = "share of attention on earlier copies of the query's token"
_INDUCTION = "share of attention on tokens that follow an earlier copy of the query's token"

ROLES: dict[str, Role] = {
    "previous-token": Role("attention", "random", f"{_PREVIOUS}, on repeated random tokens"),
    "duplicate-token": Role("attention", "random", f"{_DUPLICATE}, on repeated random tokens"),
    "induction": Role("attention", "random", f"{_INDUCTION}, on repeated random tokens"),
    "previous-token-text": Role("attention", "text", f"{_PREVIOUS}, on text"),
    "duplicate-token-text": Role("attention", "text", f"{_DUPLICATE}, on text"),
    "induction-text": Role("attention", "text", f"{_INDUCTION}, on text"),
    "sink": Role("attention", "text", "mean attention of later queries to the first token"),
    "sink-share": Role(
        "attention", "text", f"share of later queries that give the first token more than {SINK}"
    ),
    "self": Role("attention", "text", "share of attention on the query itself"),
    "next-token": Role("attention", "text", "share of attention on the token after the query"),
    "local": Role(
        "attention", "text", "share of attention within the window around the query, itself left out"
    ),
    "delimiter": Role(
        "attention", "text", "share of attention on punctuation and special tokens, the first token left out"
    ),
    "rare-token": Role(
        "attention",
        "text",
        "share of attention on the text's rarest tokens, by their counts in all texts read",
    ),
    "copying": Role(
        "weights", "", "Σλ ÷ Σ|λ| of W_U · W_OV · W_E: whether attending to a token raises its own logit"
    ),
    "matching": Role(
        "weights", "", "Σλ ÷ Σ|λ| of W_E · W_QK · W_E: whether a token attends to its own copies"
    ),
    "q-composition": Role(
        "weights", "", "largest ‖W_QKᵀ · W_OV‖ ÷ (‖W_QK‖ ‖W_OV‖) with the W_OV of a head of an earlier layer"
    ),
    "k-composition": Role(
        "weights", "", "largest ‖W_QK · W_OV‖ ÷ (‖W_QK‖ ‖W_OV‖) with the W_OV of a head of an earlier layer"
    ),
    "v-composition": Role(
        "weights", "", "largest ‖W_OV′ · W_OV‖ ÷ (‖W_OV′‖ ‖W_OV‖) with the W_OV of a head of an earlier layer"
    ),
    "direct-logit": Role(
        "logits",
        "random",
        "own contribution to the logit of the right next token minus the mean logit, final norm held fixed",
    ),
    "function-vector": Role(
        "answers",
        "pairs",
        "change of p(answer) when the output at the last token of prompts with shuffled answers becomes its "
        "mean over correct prompts",
    ),
    "retrieval": Role(
        "retrieval",
        "needles",
        "share of the needle's tokens that are generated while the head's largest attention sits on them",
    ),
    "query-retrieval": Role(
        "retrieval",
        "documents",
        "attention from the query to the document that answers it, minus that of an empty query",
    ),
}


class Roles(Opening):
    """Settings of `headwise.roles`."""

    out: Path | None = option(
        None, "Save the roles in this folder; finished ones are shown again.", short="-o", decides=False
    )
    roles: tuple[str, ...] = option((), "Which roles; default: all.")
    texts: Any = option(
        None,
        "Texts: a file with one text per line, or a table with a column sentence; in Python also a list. "
        "Default: sentences of the embedded grammar, which are synthetic.",
    )
    examples: int = option(64, "At most this many texts.", ge=1)
    max_length: int = option(256, "Maximum number of tokens per text.", ge=2)
    sequences: int = option(8, "Sequences of repeated random tokens.", ge=1)
    repeated: int = option(50, "Random tokens per sequence; each sequence is repeated once.", ge=2)
    window: int = option(5, "Tokens on either side of the query that count as local.", ge=1)
    exclude_first: bool = option(
        False,
        "Leave attention to the first token out of previous-token, duplicate-token and induction "
        "(TransformerLens: `exclude_bos`).",
    )
    exclude_current: bool = option(
        False,
        "Leave attention to the query itself out of previous-token, duplicate-token and induction "
        "(TransformerLens: `exclude_current_token`).",
    )
    pairs: Any = option(
        None,
        "Pairs for function vectors: a table with columns input and answer; in Python also a list of pairs. "
        "Without them, function vectors are not scored.",
    )
    shots: int = option(5, "Pairs shown in a prompt for function vectors.", ge=1)
    prompts: int = option(16, "Prompts for function vectors, correct ones and shuffled ones.", ge=2)
    needles: Any = option(
        None,
        "Prompts for retrieval: a table with columns context, needle (a part of the context) and question; "
        "in Python also a list of such rows. Default: random tokens among random tokens, whose beginning is "
        "repeated.",
    )
    documents: Any = option(
        None,
        "Prompts for query-retrieval: a table (JSON) with columns documents (a list), query, and gold (the "
        "document's number, from 0); in Python also a list of such rows. Default: documents of random "
        "tokens, and some tokens of one as the query.",
    )
    batch_size: int = option(8, "Texts per batch; the result does not depend on it.", ge=1, decides=False)
    seed: int = SEED
    heads: Any = HEADS
    quiet: bool = QUIET

    @field_validator("roles")
    @classmethod
    def _check_roles(cls, roles: tuple[str, ...]) -> tuple[str, ...]:
        for role in roles:
            if role not in ROLES:
                raise ValueError(
                    f"{role!r} is unknown{did_you_mean(role, ROLES)}; choose from {', '.join(ROLES)}"
                )
        return roles

    @property
    def names(self) -> list[str]:
        """The roles that are measured, in the order of the table."""
        return [role for role in ROLES if not self.roles or role in self.roles]
