"""What decides a result: operation, settings, the content of model, tokenizer and data; its key; and in words how two differ."""

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
    r"(tokenizer|vocab|merges|special_tokens|added_tokens|spiece|sentencepiece|chat_template)|\.(model|jinja|txt)$"
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
    chosen = settings.decides() if hasattr(settings, "decides") else dict(settings)
    found: dict[str, Any] = {"operation": operation, "version": version, "settings": chosen}
    if model is not None:
        found["model"] = model if isinstance(model, dict) else model_parts(model, tokenizer)
    found["tasks"] = [[task.name, _facts(task, splits)] for task in tasks]
    if also:
        found["also"] = [[decoder, task.name, _facts(task, splits)] for decoder, task in also.items()]
    plain: Decision = json.loads(json.dumps(found, default=_plain))
    return plain


def key_of(decided: Decision) -> str:
    """What a result is filed under: the fingerprint of its decision."""
    return fingerprint(decided)


def model_parts(model: Any, tokenizer: Any = None, training: bool = False) -> dict[str, Any]:
    """The content of a model: its weights, its configuration and its tokenizer, each by a hash; of a live one, how it is built, too.

    Args:
        model: a folder, a hub id, or a live model.
        tokenizer: that it is used with; default: its own.
        training: a live model will be trained, so that its frozen parameters count.
    """
    if not isinstance(model, str | Path):
        from headwise.store._live import live_parts

        return {"given": "as a live model", **live_parts(model, tokenizer, training)}
    parts: dict[str, Any] = {part: fingerprint(found) for part, found in _files(model_folder(model)).items()}
    if tokenizer is not None:
        from headwise.store._live import tokenizer_content

        parts["tokenizer"] = tokenizer_content(tokenizer)
    return {"given": "as files", **parts}


def differences(before: Decision, now: Decision) -> list[str]:
    """What differs between two decisions, in words, one line each; empty if nothing does."""
    if before.get("operation") != now["operation"]:
        return [f"it is of {before.get('operation')!r}, and this one of {now['operation']!r}"]
    found = []
    if before.get("version") != now["version"]:
        found.append(f"{now['operation']} has changed (version {before.get('version')} and {now['version']})")
    found += _values(before.get("settings", {}), now["settings"])
    found += _models(before.get("model"), now.get("model"))
    tasks = [name for name, _ in before.get("tasks", [])], [name for name, _ in now["tasks"]]
    if tasks[0] != tasks[1]:
        found.append(f"its tasks are {', '.join(tasks[0])}, and this one's {', '.join(tasks[1])}")
    else:
        pairs = zip(before["tasks"], now["tasks"], strict=True)
        found += [line for (name, old), (_, new) in pairs for line in _data(name, old, new)]
    old_also, new_also = (
        {(a, b): facts for a, b, facts in decided.get("also", [])} for decided in (before, now)
    )
    for place in {**old_also, **new_also}:
        if place not in old_also or place not in new_also:
            found.append(f"{place[1]} {'was' if place in old_also else 'is now'} evaluated too")
        else:
            found += _data(place[1], old_also[place], new_also[place])
    if not found and before != now:
        found.append("it records other facts, as another version of headwise does")
    return found


def _facts(task: Any, splits: Sequence[str]) -> dict[str, Any]:
    read = {split: task.split(split).fingerprint for split in splits if split in task.splits}
    return {"kind": task.kind, "metric": task.metric, "splits": read}


def _values(before: Any, now: Any) -> list[str]:
    """Settings that differ; of tables only the entries that do."""
    found = []
    for name in {**before, **now}:
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            found += _values(old, new)
        elif old != new:
            hashes = all(isinstance(one, str) and re.fullmatch(r"[0-9a-f]{64}", one) for one in (old, new))
            found.append(f"{name} changed" if hashes else f"{name} was {old!r} and is {new!r}")
    return found


def _models(before: Any, now: Any) -> list[str]:
    if before == now:
        return []
    if not isinstance(before, dict) or not isinstance(now, dict):
        return ["the model changed"]
    if before["given"] != now["given"]:
        return [f"the model was given {before['given']}, and now {now['given']}"]
    return [_changed(part, before.get(part), now[part]) for part in now if before.get(part) != now[part]]


def _changed(part: str, before: Any, now: Any) -> str:
    """What changed in one part of a model; of parts that are kept by name, where."""
    said = f"the model's {NAMES[part]} changed" if part in NAMES else f"the {part} changed"
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return said
    names = sorted(name for name in {**before, **now} if before.get(name) != now.get(name))
    return f"{said}: {', '.join(names[:NAMED])}{f' and {len(names) - NAMED} more' * (len(names) > NAMED)}"


def _data(name: str, before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    words = {"train": "training", "validation": "validation", "test": "test"}
    found = [
        f"the {what} of {name} was {before[what]} and is {now[what]}"
        for what in ("kind", "metric")
        if before[what] != now[what]
    ]
    for split in {**before["splits"], **now["splits"]}:
        old, new = before["splits"].get(split), now["splits"].get(split)
        if old != new:
            said = f"the {words.get(split, split)} data of {name}"
            found.append(f"{said} changed" if old and new else f"{said} {'were' if old else 'are now'} read")
    return found


def _files(folder: Path) -> dict[str, list[Any]]:
    """[name, content] of the files of a model by part; of a folder of headwise only those that its manifest lists."""
    parts: dict[str, list[Any]] = {part: [] for part in PARTS}
    if folder.is_file():  # a GGUF file is weights, configuration and tokenizer
        return parts | {"weights": [content_hash(folder)]}
    names = [file.relative_to(folder).as_posix() for file in sorted(folder.rglob("*")) if file.is_file()]
    if (folder / manifest.NAME).is_file():
        record = manifest.read(folder)
        names = [*record.get("files", names)]
        parts["configuration"].append(
            {name: value for name, value in record.items() if name not in manifest.AROUND}
        )
    for name in names:
        path = folder / name
        if path.name == manifest.NAME and path.parent != folder:  # a model within: those of single tasks
            for part, held in _files(path.parent).items():
                parts[part].append([name, held])
        elif path.suffix in MODEL_FILES and name not in (manifest.NAME, "training.json", "started.json"):
            part = (
                "weights"
                if path.suffix == ".safetensors"
                else "tokenizer"
                if TOKENIZER.search(path.name)
                else "configuration"
            )
            parts[part].append([name, content_hash(path)])
    if not parts["weights"]:
        raise HeadwiseError(f"{folder.absolute()} is not a model: it holds no weights as *.safetensors")
    return {part: sorted(held, key=json.dumps) for part, held in parts.items()}


def _plain(value: Any) -> Any:
    """A setting that is not a JSON value: an array or set of heads by its fingerprint, a path by its content."""
    return content_hash(value) if isinstance(value, Path) else fingerprint(value)
