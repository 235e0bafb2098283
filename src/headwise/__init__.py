"""headwise: the attention heads of Hugging Face transformers.

Names are imported when first used, so that `import headwise` costs milliseconds and torch is loaded only when needed.
"""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

__version__ = "0.1.0"

if TYPE_CHECKING:
    from headwise import (
        behaviour as behaviour,
        engine as engine,
        evaluation as evaluation,
        figures as figures,
        grammar as grammar,
        harness as harness,
        heads as heads,
        lesions as lesions,
        models as models,
        probing as probing,
        scoring as scoring,
        sections as sections,
        sharing as sharing,
        similarity as similarity,
        steering as steering,
        store as store,
        studies as studies,
        tasks as tasks,
        training as training,
    )
    from headwise.behaviour import roles as roles
    from headwise.errors import HeadwiseError as HeadwiseError, MissingExtra as MissingExtra
    from headwise.evaluation import evaluate as evaluate
    from headwise.heads import Heads as Heads, HeadSet as HeadSet, UnsupportedModel as UnsupportedModel
    from headwise.lesions import dissociate as dissociate, lesion as lesion
    from headwise.probing import HeadEmbedding as HeadEmbedding, probe as probe
    from headwise.scoring import (
        bottom_heads as bottom_heads,
        compare_scores as compare_scores,
        score as score,
        top_heads as top_heads,
    )
    from headwise.sharing import from_pretrained as from_pretrained, push_to_hub as push_to_hub
    from headwise.steering import steer as steer
    from headwise.store._loading import load as load
    from headwise.tasks import Task as Task
    from headwise.training import train as train

__getattr__, __all__ = lazily(__name__)
__all__ += ["__version__"]


def __dir__() -> list[str]:
    return sorted(__all__)
