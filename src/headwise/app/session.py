"""The model behind the page: predictions with and without a lesion, attention of a head, rankings, and
evaluation of a sample."""

import threading
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise._base.names import legible, shown
from headwise.app.answers import answer, read
from headwise.app.language import (
    LONG_TEXT,
    check_steering,
    continuations,
    continues,
    patching,
    pieces,
    prompt,
    row_of,
)
from headwise.app.values import MAX_TEXT, check_number, check_share, check_text, check_whole
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.models import MultiTaskModel, TaskModel, as_trained, open_model, reading
from headwise.scoring import score, top_heads
from headwise.steering import Steering
from headwise.store import load, manifest
from headwise.tasks import KINDS, METRICS, Task, batches, metric_label

MAPPED = 64  # tokens of a language model's text up to which a whole map is drawn
STRONGEST = 100.0  # steering
GLANCED = 32  # tokens of the small maps of every head
SAMPLE = 1000  # most examples of one evaluation
SCORED = 200  # training examples a ranking reads


class Session:
    """One model and what the page asks of it. Calls are serialised: a model has one set of hooks.

    Args:
        model: a multi-task model, or a plain transformers model with its head, from `open_model`.
        tasks: tasks with data, for examples, rankings and evaluation; may be empty.
        name: shown on the page.
        steering: of a language model: what `headwise steer` found.

    Raises:
        HeadwiseError: the steering does not fit the model.
    """

    def __init__(
        self,
        model: MultiTaskModel | TaskModel,
        tasks: Sequence[Task] = (),
        name: str = "",
        steering: Steering | None = None,
    ) -> None:
        self.model, self.name = model.eval(), name
        self.heads = Heads(model.encoder)
        self.steering = None if steering is None else check_steering(steering, model, self.heads)
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
                {
                    "name": task.name,
                    "kind": task.kind,
                    "data": task.name in self.data,
                    "pair": self.pairs.get(task.name),  # None: not known
                }
                for task in self.model.tasks.values()
            ],
            "max_text": LONG_TEXT if continues(self.model) else MAX_TEXT,
            "continues": continues(self.model),
            "steering": self._steering(),
        }

    def _steering(self) -> dict[str, Any] | None:
        if self.steering is None:
            return None
        return {
            "target": str(self.steering.settings["target"]),
            "strength": self.steering.strength,
            "strongest": min(STRONGEST, float(self.steering.table["strength"].max())),
            "heads": [[layer, head] for layer, head in self.steering.vectors],
        }

    def gates(self, entries: Any) -> Tensor:
        """(layers, heads) gates from [[layer, head, value], ...]; heads not named are open.

        Raises:
            HeadwiseError: a head does not exist, or a value is not between 0 and 1.
        """
        gates = torch.ones(self.heads.shape)
        if not isinstance(entries, list) or len(entries) > self.heads.total:
            raise HeadwiseError("gates must be a list of [layer, head, value], at most one per head")
        for entry in entries:
            if not isinstance(entry, list) or len(entry) != 3:
                raise HeadwiseError(f"{shown(entry)} is not [layer, head, value]")
            layer, head = self._place(entry)
            gates[layer, head] = check_share(f"the gate of head {layer}.{head}", entry[2])
        return gates

    def _place(self, entry: list[Any]) -> tuple[int, int]:
        layer = check_whole("layer", entry[0], 0, len(self.heads.sites) - 1)
        return layer, check_whole(f"head of layer {layer}", entry[1], 0, self.heads.sites[layer].n_heads - 1)

    def predict(
        self, text: Any, second: Any, gates: Any, patch: Any = None, strength: Any = 0
    ) -> list[dict[str, Any]]:
        """Every task's answer to a text (or pair), intact and changed.

        Args:
            text, second: what is typed.
            gates: [[layer, head, value], ...].
            patch: of a language model: {"heads": [[layer, head], ...], "source": another text, "tokens":
                "all" or "last"}.
            strength: of the steering that the session was opened with.

        Raises:
            HeadwiseError: something is not as it must be; the message says what.
        """
        if continues(self.model):
            return [self._continued(self.model, text, gates, patch, strength)]
        if patch is not None or strength:
            raise HeadwiseError(
                "patches and steering are for left-to-right language models, and this model is not one"
            )
        text, second, opened = check_text(text), check_text(second, empty=True), self.gates(gates)
        both = torch.stack([torch.ones_like(opened), opened]).to(self.model.device)  # (2, layers, heads)
        batch = read(self.model, text, second)
        with self.lock, torch.inference_mode(), self.heads.gated(both):
            if isinstance(self.model, TaskModel):
                logits = self.model.logits(batch).float()
                return [answer(self.model, task, logits, batch) for task in self.model.tasks.values()]
            states = self.model.states(batch)  # one pass for all tasks
            unlabelled = replace(batch, labels=batch.labels.new_full((2,), -1))
            answers = []
            for task in self.model.tasks.values():
                header = {"task": task.name, "kind": task.kind}
                kind = KINDS[task.kind]
                if self.pairs.get(task.name) and not second:
                    note = f"{task.name} compares two sentences: type the second one"
                    answers.append({**header, "note": note})
                elif kind.one_answer or kind.tags_words:
                    asking = batch if kind.tags_words else unlabelled
                    logits = self.model.decoders[task.name](states, asking).logits
                    answers.append(answer(self.model, task, logits, batch))
                else:
                    answers.append({**header, "note": f"tasks of kind {task.kind} are not shown here"})
            return answers

    def _continued(
        self, model: TaskModel, text: Any, gates: Any, patch: Any, strength: Any
    ) -> dict[str, Any]:
        """What a language model says next, intact and changed, and after the source of the patch."""
        opened, inputs, source = self.gates(gates), prompt(model, text), None
        blocks: list[Any] = [
            self.heads.gated(opened.to(model.device)),
            self._steered(self._strength(strength)),
        ]
        length = inputs["input_ids"].shape[1]
        if patch is not None:
            if not isinstance(patch, dict):
                raise HeadwiseError(f"{shown(patch)} is not a patch: heads, source and tokens are expected")
            named = patch.get("heads")
            if not isinstance(named, list) or not all(isinstance(e, list) and len(e) == 2 for e in named):
                raise HeadwiseError("the heads of a patch must be a list of [layer, head]")
            source, block = patching(model, self.heads, HeadSet(map(self._place, named)), patch, length)
            blocks.append(block)
        with self.lock, torch.inference_mode():
            tokens = continuations(model, inputs, blocks, source)
        return {"task": "next token", "kind": "next-token", "length": length, **tokens}

    def _strength(self, strength: Any) -> float:
        scale = check_number("strength", strength, 0, STRONGEST)
        if scale and self.steering is None:
            raise HeadwiseError(
                "no steering was loaded: start the app with --steer and a folder of `headwise steer --out`"
            )
        return scale

    def _steered(self, strength: float) -> Any:
        if self.steering is None or not strength:
            return nullcontext()
        return self.steering.applied(self.heads, strength)

    def attention(self, text: Any, second: Any, layer: Any, head: Any, query: Any = None) -> dict[str, Any]:
        """The attention map of one head: tokens, and (from, to) weights.

        Of a language model and a long text, only the row of one token, numbered `query` (default: the last).
        """
        self._place([layer, head])
        if continues(self.model):
            inputs = prompt(self.model, text)
            tokens, length = pieces(self.model, text.strip(), inputs), inputs["input_ids"].shape[1]
            if length > MAPPED or query is not None:
                query = check_whole("query", length - 1 if query is None else query, 0, length - 1)
                with self.lock, torch.inference_mode():
                    weights = row_of(self.model, self.heads, inputs, layer, head, query)
                return {"tokens": tokens, "query": query, "weights": [weights]}
        elif query is not None:
            raise HeadwiseError(
                "single rows of attention are for left-to-right language models, and this model is not one"
            )
        else:
            inputs = read(self.model, check_text(text), check_text(second, empty=True), rows=1).inputs
            tokens = self.model.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
        weights = self._attention(inputs)[layer][0, head].double().cpu().numpy()
        return {"tokens": tokens, "weights": weights.round(4).tolist()}

    def attentions(self, text: Any, second: Any) -> dict[str, Any]:
        """Every head's attention map at a glance: among the first tokens, a byte per weight, in base64,
        [layer][head]."""
        if continues(self.model):  # whose first tokens do not see the later ones
            inputs = {name: value[:, :GLANCED] for name, value in prompt(self.model, text).items()}
        else:
            inputs = read(self.model, check_text(text), check_text(second, empty=True), rows=1).inputs
        maps = self._attention(inputs)
        size = min(GLANCED, maps[0].shape[-1])
        glances = []
        for layer in maps:
            shades = (255 * layer[0, :, :size, :size].float()).round().clamp(0, 255).to(torch.uint8).cpu()
            glances.append([b64encode(head.tobytes()).decode() for head in shades.numpy()])
        return {"size": size, "maps": glances}

    def _attention(self, inputs: Mapping[str, Tensor]) -> Sequence[Tensor]:
        """Of each layer, (1, heads, tokens, tokens)."""
        with self.lock, torch.inference_mode(), self.heads.recorded(attention=True) as tape:
            self.model.encoder(**inputs)
        return tape.attention

    def examples(self, name: Any, count: int = 20) -> list[list[str]]:
        """Some validation texts of a task."""
        held_out = self._task(name).split("validation")
        return [list(text) for text in held_out.sample(count).texts]

    def top(self, name: Any, fraction: Any) -> list[list[int]]:
        """The top heads of a task, by gate-gradient on a sample of its training data (computed once)."""
        share, task = check_share("fraction", fraction), self._task(name)
        with self.lock:
            if name not in self._scores:
                self._scores[name] = score(self.model, task, examples=SCORED, heads=self.heads, quiet=True)
        return [[layer, head] for layer, head in top_heads(self._scores[name], fraction=share)]

    def evaluate(self, name: Any, gates: Any, size: Any, strength: Any = 0) -> None:
        """Starts the evaluation of a validation sample, intact, and gated and steered, in the background;
        `job` tells how far it is."""
        task, opened, scale = self._task(name), self.gates(gates), self._strength(strength)
        check_whole("size", size, 1, SAMPLE)
        with self.lock:
            if self.job["running"]:
                raise HeadwiseError("an evaluation is already running; wait until it finishes")
            self.job = {"running": True, "done": 0, "total": size, "result": None, "error": ""}
        threading.Thread(target=self._evaluate, args=(task, opened, size, scale), daemon=True).start()

    def _evaluate(self, task: Task, opened: Tensor, size: int, strength: float) -> None:
        try:
            held_out = task.split("validation").sample(size)
            encoded = reading.read_examples(
                self.model.encoder,
                self.model.tokenizer,
                held_out,
                reading.reading_length(self.model, task.name),
            )
            self.job["total"] = len(held_out)
            predictions: dict[str, list[Any]] = {"intact": [], "gated": []}
            order = []
            for batch in batches(encoded, 16):
                order.append(batch.index.numpy())
                with self.lock, torch.inference_mode():
                    moved = batch.to(self.model.device)
                    predictions["intact"].append(self.model(task.name, moved).prediction.cpu().numpy())
                    with self.heads.gated(opened.to(self.model.device)), self._steered(strength):
                        predictions["gated"].append(self.model(task.name, moved).prediction.cpu().numpy())
                self.job["done"] += len(batch)
            back = np.argsort(np.concatenate(order))
            labels = None if isinstance(held_out.labels, list) else held_out.labels
            scores = {}
            for state, batched in predictions.items():
                scores[state] = task.score(np.concatenate(batched)[back], labels)
            self.job["result"] = {
                "task": task.name,
                "metric": metric_label(task.metric),
                "share": METRICS[task.metric].share,
                "examples": len(held_out),
                "lesioned": int((opened != 1).sum()),
                "strength": strength,
                **scores,
            }
        except Exception as error:  # the page shows it; a background thread has nobody else to tell
            self.job["error"] = legible(f"{type(error).__name__}: {error}")
        finally:
            self.job["running"] = False

    def _task(self, name: Any) -> Task:
        if not isinstance(name, str) or name not in self.data:
            have = ", ".join(self.data) or "none"
            raise HeadwiseError(
                f"there is no data for task {shown(name)} (there is for: {have}); start with --tasks and "
                "--data"
            )
        return self.data[name]


def open_session(source: str | Path, tasks: Sequence[Task] = (), steer: str | Path | None = None) -> Session:
    """A session on a model folder, a hub id, a run of `headwise train`, or a folder of `headwise steer`, with
    the model it steers.

    Args:
        source: the model.
        tasks: with data.
        steer: a folder of `headwise steer --out`.

    Raises:
        HeadwiseError: it cannot be opened, or has no head that could answer; the steering belongs to another
            model.
    """
    path = Path(source)
    steering = None if steer is None else load(steer)
    if steer is None and (path / manifest.NAME).is_file() and manifest.read(path)["kind"] == "steering":
        steering = load(path)
        source = path = Path(steering.settings["model"])
    saved = sorted(file.parent for file in path.rglob(manifest.NAME))
    multi_task = [folder for folder in saved if manifest.read(folder)["kind"] == "multi-task"]
    if multi_task and multi_task[0] != path:
        name = f"{path.name}/{multi_task[0].relative_to(path)}"
        return Session(open_model(multi_task[0], device="auto"), tasks, name, steering)
    model = open_model(source, () if path in saved else tasks, device="auto")
    return Session(model, tasks, path.name or str(source), steering)
