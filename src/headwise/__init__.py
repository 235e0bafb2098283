"""headwise: the attention heads of Hugging Face transformers.

Names are imported when first used, so that `import headwise` costs milliseconds and torch is loaded only when needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from headwise.behaviour import roles as roles
    from headwise.errors import HeadwiseError as HeadwiseError
    from headwise.errors import MissingExtra as MissingExtra
    from headwise.heads import Heads as Heads
    from headwise.heads import HeadSet as HeadSet
    from headwise.heads import UnsupportedModel as UnsupportedModel
    from headwise.lesions import dissociate as dissociate
    from headwise.lesions import lesion as lesion
    from headwise.probing import HeadEmbedding as HeadEmbedding
    from headwise.probing import probe as probe
    from headwise.scoring import compare_scores as compare_scores
    from headwise.scoring import score as score
    from headwise.scoring import top_heads as top_heads
    from headwise.sharing import from_pretrained as from_pretrained
    from headwise.sharing import push_to_hub as push_to_hub
    from headwise.steering import steer as steer
    from headwise.store._loading import load as load
    from headwise.tasks import Task as Task
    from headwise.training import train as train

# public name -> the module that defines it
_WHERE = {
    "HeadwiseError": "headwise.errors",
    "MissingExtra": "headwise.errors",
    "HeadSet": "headwise.heads",
    "Heads": "headwise.heads",
    "UnsupportedModel": "headwise.heads",
    "load": "headwise.store",
    "from_pretrained": "headwise.sharing",
    "push_to_hub": "headwise.sharing",
    "compare_scores": "headwise.scoring",
    "score": "headwise.scoring",
    "top_heads": "headwise.scoring",
    "dissociate": "headwise.lesions",
    "lesion": "headwise.lesions",
    "HeadEmbedding": "headwise.probing",
    "probe": "headwise.probing",
    "roles": "headwise.behaviour",
    "Task": "headwise.tasks",
    "steer": "headwise.steering",
    "train": "headwise.training",
}
_ROOMS = (
    "heads",
    "tasks",
    "models",
    "store",
    "engine",
    "figures",
    "scoring",
    "training",
    "lesions",
    "probing",
    "behaviour",
    "similarity",
    "steering",
    "harness",
    "studies",
    "sharing",
)

__all__ = ["__version__", *_WHERE, *_ROOMS]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    if name in _ROOMS:
        return import_module(f"headwise.{name}")
    raise AttributeError(f"module 'headwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
