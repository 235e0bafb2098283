"""What decides a result: operation, settings, the content of model, tokenizer and data; its key; and in words
how two differ."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headwise._base.places import model_folder
from headwise.errors import HeadwiseError
from headwise.store import _manifest as manifest
from headwise.store._fingerprints import MODEL_FILES, content_hash, fingerprint

Decision = dict[str, Any]  # JSON values
TOKENIZER = re.compile(
    r"(tokenizer|vocab|merges|special_tokens|added_tokens|spiece|sentencepiece|chat_template)|"
    r"\.(model|jinja|txt)$"
)
PARTS = ("weights", "configuration", "tokenizer")
NAMED = 3  # attributes that a message names
NAMES = {
    "weights": "weights",
    "configuration": "configuration",
    "classes": "modules",
    "attributes": "attributes",
    "buffers": "buffers",
    "hooks": "hooks",
    "frozen": "choice of frozen parameters",
}  # of the parts of a model, the tokenizer aside


def decision(
    operation: str,
    settings: Any,
    *,
    model: Any = None,
    tokenizer: Any = None,
    tasks: Iterable[Any] = (),
    splits: Sequence[str] = ("train", "validation"),
    also: Mapping[str, Any] | None = None,
    version: int = 1,
) -> Decision:
    """Everything that a result depends on, as JSON: contents, never paths or the names of classes.

    Args:
        operation: its name.
        settings: a `Settings`, whose `decides()` counts, or a mapping. A `Path` in it counts by its content.
        model: a folder, a hub id, a live model, or its `model_parts`.
        tokenizer: of a live model; default: its own.
        tasks: what it learns or is judged on, each by kind, metric and the examples of `splits`.
        splits: which of their splits are read; those a task lacks are left out.
        also: further tasks by the name of the decoder that answers them.
        version: raise it when the operation comes to mean something else.
    """
    deciding_settings = settings.decides() if hasattr(settings, "decides") else dict(settings)
    facts: dict[str, Any] = {"operation": operation, "version": version, "settings": deciding_settings}
    if model is not None:
        facts["model"] = model if isinstance(model, dict) else model_parts(model, tokenizer)
    facts["tasks"] = [[task.name, _facts(task, splits)] for task in tasks]
    if also:
        facts["also"] = [[decoder, task.name, _facts(task, splits)] for decoder, task in also.items()]
    plain: Decision = json.loads(json.dumps(facts, default=_plain))
    return plain


def key_of(decided: Decision) -> str:
    """What a result is filed under: the fingerprint of its decision."""
    return fingerprint(decided)


def model_parts(model: Any, tokenizer: Any = None, training: bool = False) -> dict[str, Any]:
    """The content of a model: its weights, its configuration and its tokenizer, each by a hash; of a live
        one, how it is built, too.

    Args:
        model: a folder, a hub id, or a live model.
        tokenizer: that it is used with; default: its own.
        training: a live model will be trained, so that its frozen parameters count.
    """
    if not isinstance(model, str | Path):
        from headwise.store._live import live_parts

        return {"given": "as a live model", **live_parts(model, tokenizer, training)}
    hashes: dict[str, Any] = {
        component: fingerprint(files) for component, files in _files(model_folder(model)).items()
    }
    if tokenizer is not None:
        from headwise.store._live import tokenizer_content

        hashes["tokenizer"] = tokenizer_content(tokenizer)
    return {"given": "as files", **hashes}


def differences(before: Decision, now: Decision) -> list[str]:
    """What differs between two decisions, in words, one line each; empty if nothing does."""
    if before.get("operation") != now["operation"]:
        return [f"it is of {before.get('operation')!r}, and this one of {now['operation']!r}"]
    lines = []
    if before.get("version") != now["version"]:
        lines.append(f"{now['operation']} has changed (version {before.get('version')} and {now['version']})")
    lines += _values(before.get("settings", {}), now["settings"])
    lines += _models(before.get("model"), now.get("model"))
    tasks = [name for name, _ in before.get("tasks", [])], [name for name, _ in now["tasks"]]
    if tasks[0] != tasks[1]:
        lines.append(f"its tasks are {', '.join(tasks[0])}, and this one's {', '.join(tasks[1])}")
    else:
        for (name, old), (_, new) in zip(before["tasks"], now["tasks"], strict=True):
            lines += _data(name, old, new)
    old_also = {(decoder, name): facts for decoder, name, facts in before.get("also", [])}
    new_also = {(decoder, name): facts for decoder, name, facts in now.get("also", [])}
    for answer in {**old_also, **new_also}:
        _, name = answer
        if answer not in new_also:
            lines.append(f"{name} was evaluated too")
        elif answer not in old_also:
            lines.append(f"{name} is now evaluated too")
        else:
            lines += _data(name, old_also[answer], new_also[answer])
    if not lines and before != now:
        lines.append("it records other facts, as another version of headwise does")
    return lines


def _facts(task: Any, splits: Sequence[str]) -> dict[str, Any]:
    read = {split: task.split(split).fingerprint for split in splits if split in task.splits}
    return {"kind": task.kind, "metric": task.metric, "splits": read}


def _values(before: Any, now: Any) -> list[str]:
    """Settings that differ; of tables only the entries that do."""
    lines = []
    for name in {**before, **now}:
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            lines += _values(old, new)
        elif old != new:
            hashes = all(isinstance(text, str) and re.fullmatch(r"[0-9a-f]{64}", text) for text in (old, new))
            if hashes:
                lines.append(f"{name} changed")
            else:
                lines.append(f"{name} was {old!r} and is {new!r}")
    return lines


def _models(before: Any, now: Any) -> list[str]:
    if before == now:
        return []
    if not isinstance(before, dict) or not isinstance(now, dict):
        return ["the model changed"]
    if before["given"] != now["given"]:
        return [f"the model was given {before['given']}, and now {now['given']}"]
    return [
        _changed(component, before.get(component), now[component])
        for component in now
        if before.get(component) != now[component]
    ]


def _changed(component: str, before: Any, now: Any) -> str:
    """What changed in one part of a model; of parts that are kept by name, where."""
    name = f"model's {NAMES[component]}" if component in NAMES else component
    sentence = f"the {name} changed"
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return sentence
    names = sorted(name for name in {**before, **now} if before.get(name) != now.get(name))
    unnamed = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{sentence}: {', '.join(names[:NAMED])}{unnamed}"


def _data(name: str, before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    words = {"train": "training", "validation": "validation", "test": "test"}
    lines = [
        f"the {fact} of {name} was {before[fact]} and is {now[fact]}"
        for fact in ("kind", "metric")
        if before[fact] != now[fact]
    ]
    for split in {**before["splits"], **now["splits"]}:
        old, new = before["splits"].get(split), now["splits"].get(split)
        subject = f"the {words.get(split, split)} data of {name}"
        if old == new:
            continue
        if not new:
            lines.append(f"{subject} were read")
        elif not old:
            lines.append(f"{subject} are now read")
        else:
            lines.append(f"{subject} changed")
    return lines


def _files(folder: Path) -> dict[str, list[Any]]:
    """[name, content] of the files of a model by part; of a folder of headwise only those that its manifest
    lists."""
    files: dict[str, list[Any]] = {component: [] for component in PARTS}
    if folder.is_file():  # a GGUF file is weights, configuration and tokenizer
        return files | {"weights": [content_hash(folder)]}
    names = [file.relative_to(folder).as_posix() for file in sorted(folder.rglob("*")) if file.is_file()]
    if (folder / manifest.NAME).is_file():
        record = manifest.read(folder)
        names = [*record.get("files", names)]
        files["configuration"].append(
            {name: value for name, value in record.items() if name not in manifest.AROUND}
        )
    for name in names:
        path = folder / name
        if path.name == manifest.NAME and path.parent != folder:  # a model within: those of single tasks
            for component, held in _files(path.parent).items():
                files[component].append([name, held])
        elif path.suffix in MODEL_FILES and name not in (manifest.NAME, "training.json", "started.json"):
            if path.suffix == ".safetensors":
                component = "weights"
            elif TOKENIZER.search(path.name):
                component = "tokenizer"
            else:
                component = "configuration"
            files[component].append([name, content_hash(path)])
    if not files["weights"]:
        raise HeadwiseError(f"{folder.absolute()} is not a model: it holds no weights as *.safetensors")
    return {component: sorted(held, key=json.dumps) for component, held in files.items()}


def _plain(value: Any) -> Any:
    """A setting that is not a JSON value: an array or set of heads by its fingerprint, a path by its
    content."""
    return content_hash(value) if isinstance(value, Path) else fingerprint(value)
