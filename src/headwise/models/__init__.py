"""What sits on the encoder for each kind of task.

A decoder is a module whose `forward(states, batch)` takes token states (batch, tokens, dim) and a batch of
`headwise.tasks`, and returns a `DecoderOutput`: one loss and one prediction per example. `build` makes the
decoder of a task; `MultiTaskModel` is an encoder with one decoder per task; `as_task_model` gives a plain
transformers model the same face; `open_model` makes either of whatever a user brings.
"""

from typing import TYPE_CHECKING, Any

from headwise import tasks
from headwise._base.lazy import lazily, resolve
from headwise.errors import HeadwiseError

if TYPE_CHECKING:
    from torch import nn

    from headwise.models._decoders.arcs import (
        projective_tree as projective_tree,
        spanning_tree as spanning_tree,
    )
    from headwise.models._decoders.output import DecoderOutput as DecoderOutput
    from headwise.models._decoders.trees import (
        cky as cky,
        log_partition as log_partition,
        span_marginals as span_marginals,
    )
    from headwise.models._export import export_task as export_task
    from headwise.models._model import MultiTaskModel as MultiTaskModel
    from headwise.models._opening import open_model as open_model
    from headwise.models._plain import TaskModel as TaskModel, as_task_model as as_task_model


def build(
    task: "TaskLike", dim: int, *, config: Any = None, pooling: str | None = None, **options: Any
) -> "nn.Module":
    """The decoder for `task` on an encoder of width `dim`.

    Args:
        task: anything with name, kind, classes and metric.
        dim: width of the encoder's token states.
        config: the encoder's configuration; sequence decoders take the shape of that family's own
            classifiers.
        pooling: for sequence-level kinds, "cls", "last" or "mean"; default: the family's own.
        options: settings of that kind's decoder (JSON values; a saved model keeps them). `decoder` names a
            class of your own, which is called with (task, dim) and the other options.

    Raises:
        HeadwiseError: no decoder exists for the task's kind.
    """
    users_class = options.pop("decoder", None)
    if users_class:
        from headwise.models._decoders.own import decoder_name, find_decoder

        decoder_name(users_class)  # refuses what is no class of decoders
        if isinstance(users_class, str):
            users_class = find_decoder(users_class)
        return users_class(task, dim, **options)
    build_decoder = tasks.KINDS[task.kind].decoder if task.kind in tasks.KINDS else ""
    if not build_decoder:
        trainable = ", ".join(sorted(name for name, kind in tasks.KINDS.items() if kind.decoder))
        raise HeadwiseError(
            f"task {task.name!r} is of kind {task.kind!r}, which has no trainable decoder; kinds that have "
            f"one: {trainable}. Language-model kinds use the model's own head: as_task_model(model, "
            "tokenizer, task)"
        )
    decoder: nn.Module = resolve(build_decoder)(task, dim, config=config, pooling=pooling, **options)
    return decoder


if TYPE_CHECKING:  # for other rooms, not for users
    from headwise.models import _memory as memory, _reading as reading
    from headwise.models._attention import without_plans
    from headwise.models._classes import answer_by_name, order_notes, renumbered
    from headwise.models._decoders.language import (
        answer_differences,
        gold_tokens,
        projecting_only,
        sum_by_example,
    )
    from headwise.models._decoders.output import SavedTask, TaskLike
    from headwise.models._decoders.sequence import SequenceDecoder
    from headwise.models._decoders.words import merge_attention, pool_words, word_room
    from headwise.models._families import HeadShape
    from headwise.models._finite import (
        check_answers,
        check_losses,
        check_scores,
        check_weights,
        no_answers,
        rates_in_words,
    )
    from headwise.models._memory import DEFAULT_LENGTH, as_trained, length_of, longest, remembered_tasks
    from headwise.models._model import ADAPTERS, DECODERS
    from headwise.models._opening import (
        check_gradients,
        load_multi_task_model,
        load_plain_model,
        open_with_tokenizer,
    )
    from headwise.models._pooling import POOLINGS, default_pooling, pool
    from headwise.models._reading import (
        check_fit,
        check_tokens,
        length_within,
        most_tokens,
        padding_side,
        read_examples,
        reading_length,
    )
    from headwise.models._soft_prompts import (
        check_without_soft_prompt,
        real_columns,
        text_columns,
        text_maps,
        token_states,
    )

__getattr__, __all__ = lazily(__name__)
__all__ += ["build"]
