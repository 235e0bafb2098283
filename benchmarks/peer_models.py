"""One model as headwise, TransformerLens, nnsight and plain hooks want it, for benchmarks/peers.py."""

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import headwise as hw
from headwise.heads import Heads
from side_by_side import medians, race, ratio

LONG = 4096  # tokens that the Llama reads at most
OURS, HOOKS = "headwise", "plain hooks"
AGREE = 1e-4  # differences of numbers that are rounding


class Models:
    """One model as each library wants it, and what it reads.

    Args:
        name: "gpt2" or "llama".
        options: sizes and device.
    """

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        from nnsight import NNsight
        from transformer_lens.model_bridge import TransformerBridge

        torch.manual_seed(0)
        self.name, self.device = name, options.device
        self.model = built(name, options.layers).to(options.device).eval().requires_grad_(False)
        self.folder = tempfile.TemporaryDirectory()  # TransformerLens reads the tokenizer again, so it stays
        self.tokenizer = numbers(self.model.config.vocab_size, self.folder.name)
        self.heads = Heads(self.model)
        layers, self.n = self.heads.shape
        self.layers, self.dim = range(layers), self.heads.sites[0].head_dim
        self.lens = TransformerBridge.boot_transformers(
            name, hf_model=deepcopy(self.model), tokenizer=self.tokenizer, device=options.device
        )
        self.sight = NNsight(deepcopy(self.model))
        self.generator = torch.Generator().manual_seed(1)
        self.ids, self.other = self.drawn(2, options.rows, options.tokens)
        self.answers = self.drawn(2, options.rows)

    def drawn(self, *shape: int) -> Tensor:
        """Random tokens."""
        return torch.randint(5, self.model.config.vocab_size, shape, generator=self.generator).to(self.device)

    def projection(self, root: Any, layer: int) -> Any:
        """Where the heads of a layer enter the output projection, of the model or of nnsight's view of it."""
        return (
            root.transformer.h[layer].attn.c_proj
            if self.name == "gpt2"
            else root.model.layers[layer].self_attn.o_proj
        )

    def slice(self, head: int) -> slice:
        """A head's part of what enters the projection."""
        return slice(head * self.dim, (head + 1) * self.dim)

    def all(self) -> Iterator[tuple[int, int]]:
        """Every head."""
        return ((layer, head) for layer in self.layers for head in range(self.n))

    @contextmanager
    def hooked(self, layer: int, change: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
        """A plain hook on one layer."""
        handle = self.projection(self.model, layer).register_forward_pre_hook(
            lambda module, args: _first(change(args[0]))
        )
        try:
            yield
        finally:
            handle.remove()

    def logits(self, ids: Tensor) -> Tensor:
        """Of the plain model."""
        return self.model(ids, use_cache=False).logits

    def sighted(self, ids: Tensor, layer: int, head: int, value: Tensor | float) -> Tensor:
        """Logits through nnsight with one head's output replaced, at all tokens, or at the last by (rows, head_dim)."""
        part = self.slice(head)
        with self.sight.trace(input_ids=ids, use_cache=False):
            place = self.projection(self.sight, layer)
            x = place.input.clone()
            if isinstance(value, float):
                x[..., part] = value
            else:
                x[:, -1, part] = value
            place.input = x
            out = self.sight.lm_head.output.save()
        return out

    def bridged(self, ids: Tensor, layer: int, head: int, value: Tensor | float) -> Tensor:
        """The same through TransformerLens."""

        def change(z: Tensor, hook: Any) -> Tensor:
            z = z.clone()
            if isinstance(value, float):
                z[:, :, head] = value
            else:
                z[:, -1, head] = value
            return z

        return self.lens.run_with_hooks(ids, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", change)])


def built(name: str, layers: int | None) -> Any:
    """A model with random weights."""
    import transformers as t

    if name == "gpt2":
        return t.GPT2LMHeadModel(t.GPT2Config(n_layer=layers or 12))
    sizes = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 8, "num_attention_heads": 8}
    return t.LlamaForCausalLM(
        t.LlamaConfig(
            **sizes,
            num_key_value_heads=2,
            vocab_size=8000,
            max_position_embeddings=LONG,
            bos_token_id=1,
            eos_token_id=2,
        )
    )


def numbers(size: int, folder: str) -> Any:
    """A tokenizer whose tokens are "t3", "t4", ..., saved in `folder`."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    names = ["<pad>", "<s>", "</s>", *(f"t{i}" for i in range(3, size))]
    inner = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "unk_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=LONG, **special).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def _first(x: Tensor | None) -> tuple[Tensor] | None:
    return None if x is None else (x,)


def zeroed(part: slice) -> Callable[[Tensor], Tensor]:
    """A change that silences one head."""

    def change(x: Tensor) -> Tensor:
        x = x.clone()
        x[..., part] = 0.0
        return x

    return change


def text_task(m: Models) -> hw.Task:
    """The tokens as a task of language modelling."""
    rows = [(" ".join(f"t{token}" for token in row),) for row in m.ids.tolist()]
    # without a validation split some of the texts would become one
    return hw.Task("text", data={"train": rows, "validation": rows[:1]}, kind="next-token")


def pair_task(clean: Tensor, corrupted: Tensor, answers: Tensor) -> hw.Task:
    """Prompts (rows, tokens) and their right and wrong answers (2, rows) as contrasts."""
    sides = [[" ".join(f"t{token}" for token in row) for row in side.tolist()] for side in (clean, corrupted)]
    rows = [
        (*texts, f"t{good}", f"t{bad}") for *texts, good, bad in zip(*sides, *answers.tolist(), strict=True)
    ]
    return hw.Task("pairs", data={"train": rows, "validation": rows[:1]}, kind="contrast")


def loss(logits: Tensor, ids: Tensor) -> Tensor:
    """Mean negative log-likelihood of the next token."""
    return cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


def scored(m: Models, task: hw.Task, method: str, **settings: Any) -> Tensor:
    """Our scores, (layers, heads)."""
    given = {
        "heads": m.heads,
        "tokenizer": m.tokenizer,
        "quiet": True,
        "max_length": m.ids.shape[1],
        **settings,
    }
    return torch.from_numpy(hw.score(m.model, task, method=method, **given).to_numpy())


def show(
    part: str,
    m: Models,
    ways: dict[str, Callable[[], Any]],
    found: dict[str, Tensor],
    options: argparse.Namespace,
    rounds: int,
    bars: dict[str, float],
) -> None:
    """Runs the ways in turn and prints one line: seconds, ratios with their bars, and how far the numbers are apart."""
    clock = time.process_time if options.device == "cpu" else time.perf_counter
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seconds = race(ways, rounds, options.device, clock, warm=rounds > 1)
    middle = medians(seconds)
    peers = {name: middle[name] for name in ("TransformerLens", "nnsight") if name in middle}
    best = min(peers, key=peers.__getitem__) if peers else ""
    ratios = {other: ratio(seconds, OURS, other) for other in ways if other != OURS}
    named = {other: ratios[best if other == "best peer" else other] for other in bars}
    apart = {
        name: float((found[OURS] - values).abs().max()) for name, values in found.items() if name != OURS
    }
    line = {
        "part": part,
        "model": f"{m.name}, {len(m.layers)} × {m.n} heads, {m.ids.shape[0]} × {m.ids.shape[1]} tokens",
        "seconds": middle,
        "ours ÷": ratios,
        "best peer": best,
        "apart": {name: float(f"{value:.2g}") for name, value in apart.items()},
        "agree": max(apart.values(), default=0.0) < AGREE,
        "bars": {name: {"at most": bars[name], "met": named[name]["median"] <= bars[name]} for name in bars},
        "rounds": rounds,
    }
    print(json.dumps(line, ensure_ascii=False), flush=True)
