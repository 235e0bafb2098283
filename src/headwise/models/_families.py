"""How each family of models classifies a text in plain transformers.

A sequence decoder is shaped like its family's own classification head, so that every task of a multi-task
model can be exported as an ordinary `AutoModelForSequenceClassification` with equal logits. Families that are
not listed here get the plain shape below, train just as well, and cannot be exported.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class HeadShape:
    """pooled state → [dropout] → [dense → activation] → dropout → linear."""

    dense: bool = True
    activation: str = "tanh"
    bias: bool = True
    dropout_in: float = 0.0
    dropout_out: float = 0.1


@dataclass(frozen=True)
class Family:
    """A family's own head.

    Attributes:
        pooling: the pooling its sequence classifier uses.
        activation: after the dense layer; None means that there is no dense layer.
        dense: where the dense layer lies in the classifier model; "@" stands for the encoder's own prefix.
        out: where the last linear layer lies.
        dropout: configuration fields that may hold the dropout before the last layer, in order of precedence.
        dropout_in: the same for the dropout before the dense layer; empty means that there is none.
        bias: whether the last layer has one.
    """

    pooling: str
    activation: str | None
    dense: str
    out: str
    dropout: tuple[str, ...] = ("classifier_dropout", "hidden_dropout_prob")
    dropout_in: tuple[str, ...] = ()
    bias: bool = True


_BERT = Family("cls", "tanh", "@.pooler.dense", "classifier")
_ROBERTA = Family(
    "cls",
    "tanh",
    "classifier.dense",
    "classifier.out_proj",
    dropout_in=("classifier_dropout", "hidden_dropout_prob"),
)
_DEBERTA = Family(
    "cls", "gelu", "pooler.dense", "classifier", ("cls_dropout", "hidden_dropout_prob"), ("pooler_dropout",)
)
_CAUSAL = Family("last", None, "", "score", dropout=(), bias=False)

FAMILIES: dict[str, Family] = {
    "bert": _BERT,
    "ernie": _BERT,
    "albert": Family("cls", "tanh", "@.pooler", "classifier", ("classifier_dropout_prob",)),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "mpnet": Family(
        "cls",
        "tanh",
        "classifier.dense",
        "classifier.out_proj",
        ("hidden_dropout_prob",),
        ("hidden_dropout_prob",),
    ),
    "electra": Family(
        "cls",
        "gelu",
        "classifier.dense",
        "classifier.out_proj",
        dropout_in=("classifier_dropout", "hidden_dropout_prob"),
    ),
    "distilbert": Family("cls", "relu", "pre_classifier", "classifier", ("seq_classif_dropout",)),
    "deberta": _DEBERTA,
    "deberta-v2": _DEBERTA,
    **dict.fromkeys(
        (
            "gpt2",
            "gpt_neo",
            "gpt_neox",
            "opt",
            "llama",
            "mistral",
            "qwen2",
            "qwen3",
            "gemma",
            "gemma2",
            "phi",
            "phi3",
        ),
        _CAUSAL,
    ),
}


def head_shape(config: Any, pooling: str) -> HeadShape:
    """The shape of a sequence decoder on a model with this configuration."""
    family = FAMILIES.get(config.model_type)
    if family is None or family.pooling != pooling:
        return HeadShape()
    return HeadShape(
        dense=family.activation is not None,
        activation=family.activation or "tanh",
        bias=family.bias,
        dropout_in=_first(config, family.dropout_in),
        dropout_out=_first(config, family.dropout),
    )


def _first(config: Any, fields: tuple[str, ...]) -> float:
    """The first of `fields` that is set; 0 if the family has no such dropout."""
    values = [getattr(config, field, None) for field in fields]
    return next((float(value) for value in values if value is not None), 0.0)
