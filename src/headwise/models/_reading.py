"""How a model reads texts: no more tokens than it has positions, by a tokenizer that fits it; wherever model,
tokenizer and texts meet."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from headwise._base.names import shown
from headwise.errors import HeadwiseError
from headwise.heads import root_of, soft_prompt
from headwise.models._memory import DEFAULT_LENGTH, length_of
from headwise.models._pooling import default_pooling
from headwise.tasks import KINDS, Encoded, Examples, encode, own_limit

MOST_UNKNOWN = 0.5  # share of a text's tokens that may be unknown to its tokenizer
POSITIONS = re.compile(r"(^|_)(wpe|pos|positions?)(_|$)")  # a module's name
OWN = "give the tokenizer that the model was trained with (tokenizer=, or saved beside its weights)"


def most_tokens(model: nn.Module) -> int | None:
    """Tokens that a transformers model reads at most; None: as many as one likes.

    Learnt positions decide: where they are numbered from the padding token on (RoBERTa), some of them hold no
    token, and tokens of prompt tuning take some. Without any, what the configuration says the model was made
    for.
    """
    config: Any = model.config
    text = config.get_text_config()
    stated = getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None)
    if not stated or stated < 0:  # XLNet says -1
        return None
    tables = _position_tables(model, stated)
    if not tables and getattr(text, "relative_attention_num_buckets", None):
        return None
    lost = max((table.padding_idx + 1 for table in tables if table.padding_idx is not None), default=0)
    adapters = getattr(model, "peft_config", {}).values()
    virtual = [adapter.num_virtual_tokens for adapter in adapters if adapter.is_prompt_learning]
    return int(stated) - lost - max(virtual, default=0)


def _position_tables(model: nn.Module, size: int) -> list[nn.Embedding]:
    """Embeddings of as many positions as the configuration states."""
    tables = []
    for path, module in model.named_modules():
        if not isinstance(module, nn.Embedding) or not POSITIONS.search(path.rpartition(".")[2]):
            continue
        if module.num_embeddings - getattr(module, "offset", 0) == size:
            tables.append(module)
    return tables


def reading_length(model: Any, task: str, max_length: int | None = None) -> int:
    """Tokens at which texts of a task are cut: as asked, else as in the model's training, else 256; never
    more than the model reads.

    Args:
        model: a MultiTaskModel or a TaskModel.
        task: name of the task.
        max_length: as asked.
    """
    return length_within(length_of(model, task, max_length) or DEFAULT_LENGTH, model.encoder)


def length_within(length: int, model: nn.Module) -> int:
    """A number of tokens, or what a transformers model reads at most."""
    most = most_tokens(model)
    return length if most is None else min(length, most)


def read_examples(
    model: nn.Module, tokenizer: Any, examples: Examples, max_length: int | None = None, **options: Any
) -> Encoded:
    """Examples as a transformers model reads them: `encode`, cut where its positions end, and padded on the
    right behind a soft prompt.

    Args:
        model: of transformers.
        tokenizer: its tokenizer.
        examples: what is read.
        max_length: tokens of a row; default: the tokenizer's own limit, if it states one.
        options: of `encode`.

    Raises:
        HeadwiseError: the tokenizer does not fit the model.
    """
    limit = own_limit(tokenizer) if max_length is None else max_length
    length = most_tokens(model)
    if limit is not None:
        length = length_within(limit, model)
    encoded = encode(examples, tokenizer, length, **options)
    side, pad = padding_side(model, tokenizer), padding_token(model, encoded.pad)
    encoded = replace(encoded, pads_left=side == "left", pad=pad)
    check_fit(model, tokenizer, encoded)
    return encoded


def padding_side(model: nn.Module, tokenizer: Any) -> str:
    """Where texts are padded, so that what is made of a text does not depend on the others in its batch.

    On the left only before models that read from left to right: others read a text from its first column, as
    [CLS] or as position 0, and behind a soft prompt padding would come between it and the text.
    """
    reads_last = default_pooling(root_of(model).config) == "last"
    return str(tokenizer.padding_side) if reads_last and soft_prompt(model) is None else "right"


def padding_token(model: nn.Module, token: int) -> int:
    """What fills rows: the model's own padding token, since a left-to-right classifier takes any other for
    the end of a text.

    Args:
        model: of transformers.
        token: the tokenizer's padding token, for models without one.

    Raises:
        HeadwiseError: such a classifier names a padding token that no text can hold.
    """
    root: Any = root_of(model)
    stated = getattr(root.config.get_text_config(), "pad_token_id", None)
    if stated is None:
        return token
    if stated >= 0:
        return int(stated)
    if hasattr(root, "score"):  # what such classifiers call their last layer
        raise HeadwiseError(
            f"the configuration of this {type(root).__name__} has pad_token_id={stated}, which is no token, "
            f"so the model would take padding for the end of a text: set model.config.pad_token_id = {token}"
        )
    return token


def check_fit(model: nn.Module, tokenizer: Any, encoded: Encoded) -> None:
    """Raises where a model cannot read what a tokenizer made.

    Raises:
        HeadwiseError: rows are longer than its positions, padding comes between them and a soft prompt, or
            the tokenizer does not fit it: see `check_tokens`.
    """
    examples, most = encoded.examples, most_tokens(model)
    texts = f"the texts of task {examples.task!r}" if examples.task else "the texts"
    longest = int(encoded.row_lengths.max(initial=0))
    if most is not None and longest > most:
        raise HeadwiseError(
            f"{texts} have up to {longest} tokens, and {type(model).__name__} reads at most {most}: set "
            f"max_length={most}"
        )
    if encoded.pads_left and soft_prompt(model) is not None:
        raise HeadwiseError(
            f"{texts} are padded on the left, and {type(model).__name__} has a soft prompt before them, so "
            "that what it makes of a text would "
            'depend on the others in the batch: set tokenizer.padding_side = "right"'
        )
    check_tokens(model, tokenizer, encoded.ids, texts)
    further = [encoded.pad]
    if encoded.answers is not None:
        further += encoded.answers.ravel().tolist()
    if KINDS[examples.kind].masks:
        further += [encoded.mask, encoded.vocabulary - 1]  # any token may stand where one was masked
    _check_rows(model, tokenizer, max(further))


def check_tokens(model: nn.Module, tokenizer: Any, ids: NDArray[Any] | Sequence[int], texts: str) -> None:
    """Raises where a tokenizer does not fit a model.

    Args:
        model: of transformers.
        tokenizer: its tokenizer.
        ids: all tokens that are read, in any order.
        texts: what they are of, for the message.

    Raises:
        HeadwiseError: more than half of the tokens are unknown to the tokenizer, or the model has no row for
            one of them.
    """
    counts = np.bincount(np.asarray(ids, dtype=np.int64))
    if not len(counts):
        return
    _check_rows(model, tokenizer, len(counts) - 1)
    names = ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id", "mask_token_id")
    unknown, special = tokenizer.unk_token_id, {getattr(tokenizer, name) for name in names}
    # GPT-2 calls its end token unknown, and knows every byte
    if unknown is None or unknown in special or unknown >= len(counts):
        return
    around = [token for token in special if token is not None and token < len(counts)]
    total = int(counts.sum() - counts[around].sum())
    if counts[unknown] > MOST_UNKNOWN * total:
        raise HeadwiseError(
            f"the tokenizer does not fit {texts}: {counts[unknown]} of their {total} tokens are unknown to "
            f"it ({tokenizer.unk_token}), so the model would see next to nothing of them; {OWN}"
        )


def _check_rows(model: nn.Module, tokenizer: Any, token: int) -> None:
    """Raises where the model's embedding has no row for a token."""
    try:
        table = model.get_input_embeddings()  # type: ignore[operator]
    except NotImplementedError:  # it makes vectors of tokens in some other way
        return
    if hasattr(table, "get_base_layer"):  # under an adapter
        table = table.get_base_layer()
    if isinstance(table, nn.Embedding) and token >= table.num_embeddings:
        name = tokenizer.convert_ids_to_tokens(int(token)) or ""
        raise HeadwiseError(
            f"the tokenizer does not fit the model: its token {shown(name)} is number {token}, and "
            f"{type(model).__name__} has {table.num_embeddings} tokens, from 0 on; {OWN}, or call "
            f"model.resize_token_embeddings({len(tokenizer)}) and train it"
        )
