"""The heads of a model: find them, gate them, record them, freeze them, remove them."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise._base.places import default_model as default_model
    from headwise.heads._errors import (
        HeadsDidNotFire as HeadsDidNotFire,
        UnsupportedModel as UnsupportedModel,
    )
    from headwise.heads._heads import Heads as Heads
    from headwise.heads._headset import HeadSet as HeadSet
    from headwise.heads._remove.files import save_removed as save_removed

if TYPE_CHECKING:  # for other rooms, not for users
    from headwise.heads._find.dependence import is_norm, weight_axes
    from headwise.heads._find.observation import Watcher
    from headwise.heads._freeze.adapters import check_adapters
    from headwise.heads._freeze.ownership import ownership
    from headwise.heads._hooks import Hooks
    from headwise.heads._inputs import device_of, on_device, root_of, tiny_inputs
    from headwise.heads._reading import frozen_twin, turn, twinned, twins_of, undisturbed
    from headwise.heads._remove.files import cuts_of_model, load_removed, read_config, removed_from
    from headwise.heads._remove.plain import removed_before
    from headwise.heads._restoration import evaluating, forked, unchanged
    from headwise.heads._sites import Site, plain_weight
    from headwise.heads._use.attention import VISIBLE_ATTENTION, QueryRows, check_maps, eager, rows_on
    from headwise.heads._use.blocks import in_backward
    from headwise.heads._use.course import Course, with_rows
    from headwise.heads._use.positions import Pass, check_pooling, read_pass
    from headwise.heads._use.recording import Tape
    from headwise.heads._use.replacement import mean_of
    from headwise.heads._use.soft_prompts import soft_prompt, virtual_tokens, with_virtual_columns

__getattr__, __all__ = lazily(__name__)
