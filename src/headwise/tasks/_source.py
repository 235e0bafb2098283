"""Where tasks come from: the settings of every verb and recipe that names tasks."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.errors import HeadwiseError
from headwise.settings import DataPath, Settings, option

if TYPE_CHECKING:
    from headwise.tasks._task import Task


class TaskSource(Settings):
    """Which tasks, and where their data lies: the `[tasks]` table of a recipe."""

    names: tuple[str, ...] = option(
        (), "Tasks: presets (sst2), grammar:topic, treebank:dep, or names in the tasks file.", flag="--tasks"
    )
    data: DataPath | None = option(
        None,
        "Folder with the presets' data sets, or a treebank; default: the one used in training, else the hub.",
    )
    file: DataPath | None = option(
        None,
        "TOML file that defines tasks of your own, each by the file that holds its texts and labels.",
        flag="--tasks-file",
    )
    size: int | None = option(
        None,
        "Training examples per grammar task, plus a quarter as many held-out ones; "
        "default: as in the model's training, else 2000.",
        ge=10,
    )
    metric: str | None = option(
        None,
        "One metric for all tasks, e.g. accuracy; default: as in the model's training, else each task's own.",
    )
    seed: int | None = option(
        None,
        "Random seed of the grammar and of splits that headwise makes; "
        "default: as in the model's training, else 0.",
        flag="--tasks-seed",
        ge=0,
    )
    held_out: bool | None = option(
        None,
        "Judge on a tenth of the training examples, kept out of training, in place of the validation split, "
        "to choose settings; "
        "default: as in the model's training, else no.",
    )

    def decides(self) -> dict[str, Any]:
        """The settings, and by content the data that the tasks file names."""
        from headwise.tasks._names import data_files

        decisive = super().decides() | {"data": self._folders_read()}
        if self.held_out is None:
            decisive.pop("held_out", None)
        if self.file is not None:
            files = data_files(self.file, self.names)
            if files:
                decisive["files"] = files
        return decisive

    def _folders_read(self) -> "Path | dict[str, Path] | None":
        """What the tasks read of the data folder: the folders of presets where they have their own, so that
        further sets beside them do not count; else all of it."""
        from headwise.tasks._presets import own_folders

        if self.data is None or self.file is not None or not self.names:
            return self.data
        folders: dict[str, Path] = {}
        for name in self.names:
            if name.startswith("grammar:"):
                continue
            preset_folders = None if name.startswith("treebank:") else own_folders(name, self.data)
            if preset_folders is None:
                return self.data
            folders |= preset_folders
        return folders

    def listed(self) -> tuple[str, ...]:
        """The names of the tasks: those given, or all that the tasks file defines."""
        if self.names or self.file is None:
            return self.names
        return tuple(task.name for task in self.find())

    def find(self, names: Sequence[str] | None = None) -> "list[Task]":
        """The tasks; some of them by name."""
        from headwise.tasks._names import find_tasks

        return find_tasks(
            self.names if names is None else names,
            self.data,
            self.file,
            size=self.size,
            seed=self.seed,
            metric=self.metric,
            held_out=self.held_out,
        )

    def check(self) -> None:
        """Finds the tasks without reading their data.

        Raises:
            HeadwiseError: there is none of a name, or the tasks file names data that is not there.
        """
        from headwise.tasks._names import missing_files

        self.find()
        if self.file is None:
            return
        lacking = missing_files(self.file, self.names)
        if lacking:
            raise HeadwiseError(f"{self.file} names data that is not there: {', '.join(map(str, lacking))}")

    def find_trained(self) -> "tuple[list[Task], dict[str, Task]]":
        """The tasks that are trained, and by trained task a further one that its decoder answers: MNLI's
        mismatched set.
        """
        tasks = {task.name: task for task in self.find()}
        further = {}
        if {"mnli", "mnli_mm"} <= set(tasks):
            further["mnli"] = tasks.pop("mnli_mm")
        return list(tasks.values()), further
