"""A hand-written English grammar that generates sentences with gold labels by construction, for demos, tests
and controls.

It is synthetic, and says so: every task made here has `synthetic=True`. Training, validation and test share
no content word (category words such as "person" and "flower", weekdays and function words aside) and no
sentence template, so that a good score means more than remembering words.
"""

from headwise.grammar._making import NAMES, task, tasks
from headwise.grammar._treebank import treebank

__all__ = ["NAMES", "task", "tasks", "treebank"]
