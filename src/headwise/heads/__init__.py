"""The heads of a model: find them, gate them, record them, freeze them, remove them."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise._base.places import default_model as default_model
    from headwise.heads._errors import HeadsDidNotFire as HeadsDidNotFire, UnsupportedModel as UnsupportedModel
    from headwise.heads._freeze.ownership import parameters_per_head as parameters_per_head, tied_layers as tied_layers
    from headwise.heads._heads import Heads as Heads
    from headwise.heads._headset import HeadSet as HeadSet
    from headwise.heads._remove.files import save_removed as save_removed
    from headwise.heads._sites import Site as Site
    from headwise.heads._use.recording import Tape as Tape

__getattr__, __all__ = lazily(__name__)
