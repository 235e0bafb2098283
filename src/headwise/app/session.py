"""The model behind the page: predictions with and without a lesion, attention of a head, rankings, and evaluation of a sample."""

import threading
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise._base.names import shown
from headwise.app.values import MAX_TEXT, check_share, check_text, check_whole
from headwise.errors import HeadwiseError
from headwise.heads import Heads
from headwise.models import MultiTaskModel, TaskModel
from headwise.models._decoders.output import SavedTask
from headwise.models._memory import as_trained, length_of
from headwise.tasks import Batch, Task, batches, encode

MAX_TOKENS = 256
SHOWN = 10  # next tokens listed
GLANCED = 32  # tokens of the small maps of every head
SAMPLE = 1000  # most examples of one evaluation
SCORED = 200  # training examples a ranking reads


class Session:
    """One model and what the page asks of it. Calls are serialised: a model has one set of hooks.

    Args:
        model: a multi-task model, or a plain transformers model with its head, from `open_model`.
        tasks: tasks with data, for examples, rankings and evaluation; may be empty.
        name: shown on the page.
    """

    def __init__(self, model: MultiTaskModel | TaskModel, tasks: Sequence[Task] = (), name: str = "") -> None:
        self.model, self.name = model.eval(), name
        self.heads = Heads(model.encoder)
        self.data = {task.name: task for task in as_trained(model, tasks)}
        self.pairs = {name: len(task.split("validation").texts[0]) > 1 for name, task in self.data.items()}
        self.lock = threading.Lock()
        self.job: dict[str, Any] = {"running": False, "done": 0, "total": 0, "result": None, "error": ""}
        self._scores: dict[str, Any] = {}

    def describe(self) -> dict[str, Any]:
        """What the page needs to draw itself."""
        return {
            "name": self.name,
            "layers": self.heads.shape[0],
            "heads": self.heads.shape[1],
            "counts": [site.n_heads for site in self.heads.sites],
            "kinds": [site.kind for site in self.heads.sites],
            "tasks": [
                {"name": t.name, "kind": t.kind, "data": t.name in self.data, "pair": self.pairs.get(t.name)}  # None: not known
                for t in self.model.tasks.values()
            ],
            "max_text": MAX_TEXT,
        }

    def gates(self, given: Any) -> Tensor:
        """(layers, heads) gates from [[layer, head, value], ...]; heads not named are open.

        Raises:
            HeadwiseError: a head does not exist, or a value is not between 0 and 1.
        """
        gates = torch.ones(self.heads.shape)
        if not isinstance(given, list) or len(given) > self.heads.total:
            raise HeadwiseError("gates must be a list of [layer, head, value], at most one per head")
        for entry in given:
            if not isinstance(entry, list) or len(entry) != 3:
                raise HeadwiseError(f"{shown(entry)} is not [layer, head, value]")
            layer = check_whole("layer", entry[0], 0, len(self.heads.sites) - 1)
            head = check_whole(f"head of layer {layer}", entry[1], 0, self.heads.sites[layer].n_heads - 1)
            gates[layer, head] = check_share(f"the gate of head {layer}.{head}", entry[2])
        return gates

    def predict(self, text: Any, second: Any, gates: Any) -> list[dict[str, Any]]:
        """Every task's answer to a text (or pair), intact and gated, from one pass over two rows."""
        first, other, opened = check_text(text), check_text(second, empty=True), self.gates(gates)
        both = torch.stack([torch.ones_like(opened), opened]).to(self.model.device)  # (2, layers, heads)
        batch = self._batch(first, other)
        with self.lock, torch.inference_mode(), self.heads.gated(both):
            if isinstance(self.model, TaskModel):
                logits = self.model.encoder(**batch.inputs, **self.model._no_cache).logits.float()
                return [self._answer(task, logits, batch) for task in self.model.tasks.values()]
            states = self.model.states(batch)  # one pass for all tasks
            answers = []
            for task in self.model.tasks.values():
                if self.pairs.get(task.name) and not other:
                    note = f"{task.name} compares two sentences: type the second one"
                    answers.append({"task": task.name, "kind": task.kind, "note": note})
                elif task.kind in ("classes", "number", "tags"):
                    asked = batch if task.kind == "tags" else replace(batch, labels=batch.labels.new_full((2,), -1))  # unlabelled
                    answers.append(self._answer(task, self.model.decoders[task.name](states, asked).logits, batch))
                else:
                    answers.append(
                        {"task": task.name, "kind": task.kind, "note": f"tasks of kind {task.kind} are not shown here"}
                    )
            return answers

    def attention(self, text: Any, second: Any, layer: Any, head: Any) -> dict[str, Any]:
        """The attention map of one head: tokens, and (from, to) weights."""
        self.gates([[layer, head, 1]])
        maps, batch = self._attention(text, second)
        found = maps[layer][0, head]  # (tokens, tokens)
        tokens = self.model.tokenizer.convert_ids_to_tokens(batch.inputs["input_ids"][0].tolist())
        return {"tokens": tokens, "weights": [[round(w, 4) for w in row] for row in found.float().cpu().tolist()]}

    def attentions(self, text: Any, second: Any) -> dict[str, Any]:
        """Every head's attention map at a glance: among the first tokens, a byte per weight, in base64, [layer][head]."""
        maps, _ = self._attention(text, second)
        size = min(GLANCED, maps[0].shape[-1])
        small = [(255 * layer[0, :, :size, :size].float()).round().clamp(0, 255).to(torch.uint8).cpu() for layer in maps]
        return {"size": size, "maps": [[b64encode(head.numpy().tobytes()).decode() for head in layer] for layer in small]}

    def _attention(self, text: Any, second: Any) -> tuple[Sequence[Tensor], Batch]:
        """Of each layer, (1, heads, tokens, tokens)."""
        batch = self._batch(check_text(text), check_text(second, empty=True), rows=1)
        with self.lock, torch.inference_mode(), self.heads.recorded(attention=True) as tape:
            self.model.encoder(**batch.inputs)
        return tape.attention, batch

    def examples(self, name: Any, count: int = 20) -> list[list[str]]:
        """Some validation texts of a task."""
        held_out = self._task(name).split("validation")
        return [list(text) for text in held_out.sample(count).texts]

    def top(self, name: Any, fraction: Any) -> list[list[int]]:
        """The top heads of a task, by gate-gradient on a sample of its training data (computed once)."""
        from headwise.scoring import score, top_heads

        share, task = check_share("fraction", fraction), self._task(name)
        with self.lock:
            if name not in self._scores:
                self._scores[name] = score(self.model, task, examples=SCORED, heads=self.heads, quiet=True)
        return [[layer, head] for layer, head in top_heads(self._scores[name], fraction=share)]

    def evaluate(self, name: Any, gates: Any, size: Any) -> None:
        """Starts the evaluation of a validation sample, intact and gated, in the background; `job` tells how far it is."""
        task, opened = self._task(name), self.gates(gates)
        check_whole("size", size, 1, SAMPLE)
        with self.lock:
            if self.job["running"]:
                raise HeadwiseError("an evaluation is already running; wait until it finishes")
            self.job = {"running": True, "done": 0, "total": size, "result": None, "error": ""}
        threading.Thread(target=self._evaluate, args=(task, opened, size), daemon=True).start()

    def _evaluate(self, task: Task, opened: Tensor, size: int) -> None:
        try:
            held_out = task.split("validation").sample(size)
            encoded = encode(held_out, self.model.tokenizer, length_of(self.model, task.name) or MAX_TOKENS)
            self.job["total"] = len(held_out)
            found: dict[str, list[Any]] = {"intact": [], "gated": []}
            order = []
            for batch in batches(encoded, 16):
                order.append(batch.index.numpy())
                with self.lock, torch.inference_mode():
                    moved = batch.to(self.model.device)
                    for kind, gates in (("intact", torch.ones_like(opened)), ("gated", opened)):
                        with self.heads.gated(gates.to(self.model.device)):
                            found[kind].append(self.model(task.name, moved).prediction.cpu().numpy())
                self.job["done"] += len(batch)
            back = np.argsort(np.concatenate(order))
            labels = None if isinstance(held_out.labels, list) else held_out.labels
            scores = {kind: task.score(np.concatenate(parts)[back], labels) for kind, parts in found.items()}
            self.job["result"] = {"task": task.name, "metric": str(task.metric), "examples": len(held_out), **scores}
        except Exception as error:  # the page shows it; a background thread has nobody else to tell
            self.job["error"] = f"{type(error).__name__}: {error}"
        finally:
            self.job["running"] = False

    def _batch(self, text: str, second: str, rows: int = 2) -> Batch:
        tokenizer = self.model.tokenizer
        pair = [second] * rows if second else None
        options: dict[str, Any] = {"truncation": True, "max_length": MAX_TOKENS, "return_tensors": "pt"}
        inputs = tokenizer([text] * rows, pair, **options)
        words = _words(inputs, rows) if tokenizer.is_fast else torch.full_like(inputs["input_ids"], -1)
        count = max(1, int(words.max()) + 1)
        batch = Batch(
            inputs={name: inputs[name] for name in tokenizer.model_input_names if name in inputs},
            labels=torch.full((rows, count), -100),
            index=torch.arange(rows),
            owner=torch.arange(rows),
            kind="classes",
            words=words,
            context_words=words,
            n_words=torch.full((rows,), count),
        )
        return batch.to(self.model.device)

    def _answer(self, task: SavedTask, logits: Tensor, batch: Batch) -> dict[str, Any]:
        """One task's answer as JSON: rows 0 (intact) and 1 (gated) of the logits."""
        answer: dict[str, Any] = {"task": task.name, "kind": task.kind}
        if task.kind == "number":
            return {**answer, "intact": float(logits[0]), "gated": float(logits[1])}
        if task.kind == "classes":
            intact, gated = logits.softmax(-1).cpu().tolist()
            return {**answer, "classes": list(task.classes), "intact": intact, "gated": gated}
        if task.kind == "tags":
            ids = batch.inputs["input_ids"][0].tolist()
            assert batch.words is not None
            places = batch.words[0].tolist()
            firsts = [places.index(word) for word in range(max(places) + 1) if word in places]
            pieces = self.model.tokenizer.convert_ids_to_tokens(ids)
            names = [
                "".join(p.removeprefix("##") for p, w in zip(pieces, places, strict=True) if w == word)
                for word in range(len(firsts))
            ]
            rows = logits[:, firsts] if isinstance(self.model, TaskModel) else logits[:, : len(firsts)]
            intact, gated = (row.argmax(-1).tolist() for row in rows)
            tags = [[word, task.classes[a], task.classes[b]] for word, a, b in zip(names, intact, gated, strict=True)]
            return {**answer, "tags": tags}
        if task.kind == "masked-token":
            mask = self.model.tokenizer.mask_token_id
            found = (batch.inputs["input_ids"][0] == mask).nonzero()
            if not len(found):
                return {**answer, "note": f"write {self.model.tokenizer.mask_token} where the model should guess a word"}
            return {**answer, **self._tokens(logits[:, int(found[0])])}
        last = int(batch.inputs["attention_mask"][0].nonzero()[-1])
        return {**answer, **self._tokens(logits[:, last])}

    def _tokens(self, logits: Tensor) -> dict[str, Any]:
        """The likeliest tokens of the intact row, with both rows' probabilities, and the gated row's own likeliest."""
        both = logits.softmax(-1)  # (2, vocabulary)
        likely = {*both[0].topk(SHOWN).indices.tolist(), *both[1].topk(3).indices.tolist()}
        chosen = sorted(likely, key=lambda token: -float(both[0, token]))
        names = [self.model.tokenizer.decode([token]) for token in chosen]
        return {"tokens": names, "intact": both[0, chosen].tolist(), "gated": both[1, chosen].tolist()}

    def _task(self, name: Any) -> Task:
        if not isinstance(name, str) or name not in self.data:
            have = ", ".join(self.data) or "none"
            raise HeadwiseError(
                f"there is no data for task {shown(name)} (there is for: {have}); start the app with --tasks and --data"
            )
        return self.data[name]


def _words(inputs: Any, rows: int) -> Tensor:
    """(rows, tokens) word numbers by the tokenizer's own pre-tokenisation, -1 at special tokens."""
    return torch.tensor([[-1 if word is None else word for word in inputs.word_ids(row)] for row in range(rows)])


def open_session(source: str | Path, tasks: Sequence[Task] = ()) -> Session:
    """A session on a model folder, a hub id, or a run of `headwise train`.

    Raises:
        HeadwiseError: it cannot be opened, or has no head that could answer.
    """
    from headwise.models import open_model
    from headwise.store import _manifest as manifest

    path = Path(source)
    saved = sorted(file.parent for file in path.rglob(manifest.NAME)) if path.is_dir() else []
    multi = [folder for folder in saved if manifest.read(folder)["kind"] == "multi-task"]
    if multi and multi[0] != path:
        return Session(open_model(multi[0], device="auto"), tasks, f"{path.name}/{multi[0].relative_to(path)}")
    return Session(open_model(source, () if path in saved else tasks, device="auto"), tasks, path.name or str(source))
