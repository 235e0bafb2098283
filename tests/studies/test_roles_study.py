"""The study `roles`, against a slow loop with plain hooks: scores, lesions and draws of two architectures and their twins; and refusals."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
)

from headwise import engine
from headwise.engine._recipe import RecipeError, find_recipe
from headwise.engine._study import run_study, validate
from headwise.errors import HeadwiseError
from headwise.heads import Heads
from headwise.models import MultiTaskModel
from headwise.report import write_report
from headwise.studies import STUDIES
from headwise.studies._induction import spare_heads
from headwise.studies._roles_study import study
from headwise.studies._sections.lesioned_roles import finding
from light import shown_without_torch
from words import LANGUAGE, word_tokenizer

WORDS, HEADS, TOKENS = 11, 8, 9
SETTINGS = {
    "kind": "roles",
    "sequences": 3,
    "held_out": 8,
    "repeated": TOKENS,
    "top": 3,
    "draws": 8,
    "seed": 4,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with grouped queries and a GPT-2, 2 × 8 heads, over a few words, with attention far from even."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(1)
    size, words = LANGUAGE + [f"w{i}" for i in range(WORDS)], {"hidden_size": 32, "num_hidden_layers": 2}
    llama = LlamaConfig(
        vocab_size=len(size),
        num_attention_heads=HEADS,
        num_key_value_heads=4,
        intermediate_size=16,
        bos_token_id=1,
        **words,
    )
    gpt2 = GPT2Config(
        vocab_size=len(size),
        n_embd=32,
        n_layer=2,
        n_head=HEADS,
        n_positions=64,
        bos_token_id=1,
        eos_token_id=2,
    )
    for name, model in (("llama", LlamaForCausalLM(llama)), ("gpt2", GPT2LMHeadModel(gpt2))):
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(6 if weight.ndim == 2 else 1)
        model.save_pretrained(folder / name)
        word_tokenizer(size).save_pretrained(folder / name)
    return folder


def recipe(place: Path, **changes: Any) -> dict[str, Any]:
    return {**SETTINGS, "models": {name: str(place / name) for name in ("llama", "gpt2")}, **changes}


def computed(asked: dict[str, Any], out: Path) -> engine.Run:
    checked, _ = validate(study, asked, out.parent, out)
    board = run_study(study, checked, out, jobs=0, quiet=True)
    errors = [cell["error"] for cell in engine.open(out).cells() if cell.get("error")]
    if errors:
        raise RuntimeError(errors[0])
    assert not board.failed
    return engine.open(out)


@pytest.fixture(scope="module")
def run(place: Path, tmp_path_factory: pytest.TempPathFactory) -> engine.Run:
    return computed(recipe(place), tmp_path_factory.mktemp("run") / "roles")


def twice(sequences: int, seed: int) -> torch.Tensor:
    """What the model reads: the first token of every text, random words, and the same again."""
    rng = np.random.default_rng(seed)
    halves = [
        rng.choice(np.arange(len(LANGUAGE), len(LANGUAGE) + WORDS), TOKENS, replace=False)
        for _ in range(sequences)
    ]
    return torch.tensor([[1, *half, *half] for half in halves])


def opened(place: Path, name: str, weights: str) -> Any:
    kind = LlamaForCausalLM if name == "llama" else GPT2LMHeadModel
    model = kind.from_pretrained(place / name, attn_implementation="eager").eval()
    if weights == "random":
        torch.manual_seed(SETTINGS["seed"])
        twin = kind(model.config).eval()
        twin.set_attn_implementation("eager")
        return twin
    return model


def shares(model: Any) -> dict[str, tuple[np.ndarray, float]]:
    """By role, the share of attention of every head on its pattern and that of even attention, in percent; loops over every pair."""
    found: dict[str, list[Any]] = {"induction": [], "previous-token": []}
    even: dict[str, list[float]] = {"induction": [], "previous-token": []}
    for row in twice(SETTINGS["sequences"], SETTINGS["seed"]):
        with torch.no_grad():
            maps = model(row[None], output_attentions=True).attentions
        n = len(row)
        for role in found:
            wanted = torch.zeros(n, n)
            for i in range(n):
                for j in range(i + 1):
                    wanted[i, j] = float(
                        j == i - 1 if role == "previous-token" else j > 0 and row[j - 1] == row[i]
                    )
            found[role].append(np.stack([(one[0] * wanted).sum((1, 2)).numpy() / n for one in maps]))
            even[role].append(sum(float(wanted[i].sum()) / (i + 1) for i in range(n)) / n)
    return {role: (100 * np.mean(found[role], axis=0), 100 * float(np.mean(even[role]))) for role in found}


def judged(model: Any, heads: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """By held-out sequence, accuracy in percent and loss, one token at a time, heads silenced by hooks on the output projections."""
    hooks = []
    for layer in range(2):
        out = (
            model.model.layers[layer].self_attn.o_proj
            if hasattr(model, "model")
            else model.transformer.h[layer].attn.c_proj
        )

        def silence(module: Any, given: Any, layer: int = layer) -> Any:
            state = given[0].clone().view(*given[0].shape[:-1], HEADS, -1)
            for head in (head for place, head in heads if place == layer):
                state[..., head, :] = 0
            return (state.flatten(-2),)

        hooks.append(out.register_forward_pre_hook(silence))
    accuracy, loss = [], []
    for row in twice(SETTINGS["held_out"], SETTINGS["seed"] + 1000):
        with torch.no_grad():
            chances = model(row[None]).logits[0].double().log_softmax(-1)
        places = range(1 + TOKENS, 2 * TOKENS)  # of the second reading, whose first token nothing foretells
        accuracy.append(100 * np.mean([int(chances[i].argmax()) == int(row[i + 1]) for i in places]))
        loss.append(-np.mean([float(chances[i, row[i + 1]]) for i in places]))
    for hook in hooks:
        hook.remove()
    return np.array(accuracy), np.array(loss)


def places(text: str) -> list[tuple[int, int]]:
    return [(int(layer), int(head)) for layer, head in re.findall(r"L(\d+)H(\d+)", text)]


@pytest.mark.parametrize("weights", ["trained", "random"])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_everything_equals_a_slow_loop_with_plain_hooks(
    run: engine.Run, place: Path, name: str, weights: str
) -> None:
    heads, lesions, draws = (
        table[(table["model"] == name) & (table["weights"] == weights)]
        for table in (run.table(name, "roles-tables") for name in ("heads", "lesions", "draws"))
    )
    assert list(heads) == ["model", "weights", "role", "rank", "head", "share", "chance"]
    assert list(lesions) == [
        "model",
        "weights",
        "silenced",
        "accuracy",
        "low",
        "high",
        "loss",
        "interval over",
        "note",
    ]
    assert list(draws) == ["model", "weights", "draw", "heads", "accuracy", "loss"]
    model = opened(place, name, weights)
    for role, (share, chance) in shares(model).items():
        some = heads[heads["role"] == role]
        order = np.argsort(-share, axis=None, kind="stable")[:3]
        assert places(" ".join(some["head"])) == [(int(i) // HEADS, int(i) % HEADS) for i in order]
        assert some["rank"].tolist() == [1, 2, 3]
        assert some["share"].to_numpy() == pytest.approx(share.ravel()[order], abs=1e-3)
        assert some["chance"].to_numpy() == pytest.approx([chance] * 3, abs=1e-4)
    top = places(" ".join(heads.loc[heads["role"] == "induction", "head"]))
    drawn = [places(one) for one in draws["heads"]]
    assert len(drawn) == SETTINGS["draws"]
    assert lesions["loss"].nunique() == 3  # a study that silences nothing would not pass
    assert len({tuple(one) for one in drawn}) > 1
    means = []
    for one, row in zip(drawn, draws.itertuples(), strict=True):
        assert sorted(layer for layer, _ in one) == sorted(layer for layer, _ in top)
        assert len(set(one)) == len(one) == 3
        assert not set(one) & set(top)
        accuracy, loss = judged(model, one)
        assert (row.accuracy, row.loss) == pytest.approx((accuracy.mean(), loss.mean()), abs=1e-4)
        means.append(accuracy.mean())
    assert lesions["silenced"].tolist() == [
        "none",
        "3 strongest induction heads",
        "3 random heads of the same layers",
    ]
    units = {
        "8 sequences": [judged(model, []), judged(model, top)],
        "8 draws": [(np.array(means), draws["loss"].to_numpy())],
    }
    for row, (unit, (accuracy, loss)) in zip(
        lesions.to_dict("records"), [(unit, one) for unit, each in units.items() for one in each], strict=True
    ):
        assert row["interval over"] == unit
        assert (row["accuracy"], row["loss"]) == pytest.approx((accuracy.mean(), loss.mean()), abs=1e-4)
        if len(set(accuracy)) < 3:
            assert np.isnan(row["low"])
            assert row["note"] == "no interval: fewer than 3 distinct values"
        else:
            half = 2.364624 * accuracy.std(ddof=1) / 8**0.5  # t of 7 degrees of freedom
            bounds = max(accuracy.mean() - half, 0), min(accuracy.mean() + half, 100)
            assert (row["low"], row["high"]) == pytest.approx(bounds, abs=1e-3)
            assert not row["note"]


def test_results_repeat_and_are_shown_again_without_torch(
    run: engine.Run, place: Path, tmp_path: Path
) -> None:
    again = computed(recipe(place, models={"llama": str(place / "llama")}), tmp_path / "again")
    for name in ("heads", "lesions", "draws"):
        first = run.table(name, "roles-tables")
        pd.testing.assert_frame_equal(first[first["model"] == "llama"], again.table(name, "roles-tables"))
    other = computed(
        recipe(place, models={"llama": str(place / "llama")}, seed=5, twins=False), tmp_path / "other"
    )
    assert set(other.table("heads")["weights"]) == {"trained"}
    assert not other.table("draws")["loss"].isin(run.table("draws")["loss"]).any()
    assert "3 random heads of the same layers" in shown_without_torch("study", "run", tmp_path / "again")


def test_the_recipe_works_offline_at_its_small_scale(place: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from headwise.cli import app

    assert STUDIES["roles"] == "headwise.studies._roles_study:study"
    assert find_recipe("roles")[0]["kind"] == "roles"
    words = [
        "study",
        "run",
        "roles",
        "--scale",
        "small",
        "--set",
        f"models.SmolLM2-135M={place / 'gpt2'}",
        "--set",
        "repeated=10",
    ]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "run"), "--jobs", "0"])
    assert done.exit_code == 0, done.output
    assert set(engine.open(tmp_path / "run").table("heads")["role"]) == {
        "induction",
        "previous-token",
        "duplicate-token",
    }


def test_the_report_shows_lesions_and_heads(run: engine.Run, tmp_path: Path) -> None:
    page = write_report([run.folder], tmp_path / "page.html").read_text()
    for text in (
        "What is left of copying",
        "llama, random weights: head L",
        "What silencing heads costs",
        "on 3 sequences",
    ):
        assert text in page


def test_the_finding_says_what_the_lesions_carry() -> None:
    rows = [
        ("none", 69.0, 65.0, 73.0),
        ("2 strongest induction heads", 0.0, np.nan, np.nan),
        ("2 random heads of the same layers", 59.0, 57.0, 61.0),
    ]
    lesions = pd.DataFrame(rows, columns=["silenced", "accuracy", "low", "high"])
    heads = pd.DataFrame({"role": ["induction"], "head": ["L1H2"], "share": [43.2], "chance": [0.7]})
    draws = pd.DataFrame({"accuracy": [51.0, 60.0]})
    said = finding(lesions, heads, draws)
    assert (
        "predicts 69.0 % (95 % interval 65.0 to 73.0) of repeated tokens, without its 2 strongest induction heads 0.0 %"
        in said
    )
    assert said.endswith(
        "without 2 random heads of the same layers 59.0 % (95 % interval 57.0 to 61.0); the lowest of 2 draws is 51.0 %."
    )
    silent = finding(lesions.assign(accuracy=0.0), heads, draws)
    assert silent.endswith(
        "intact, the model predicts 0.0 % of repeated tokens, so lesions say nothing about copying."
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"draws": 7}, r"draws: .*8"),
        ({"held_out": 2}, r"held_out: .*8"),
        ({"roles": ["copying"]}, r"roles.*'previous-token', 'duplicate-token' or 'induction'"),
        (
            {"roles": ["previous-token"]},
            "silenced: 'induction' is none of roles, which has previous-token; add it there",
        ),
        ({"models": {}}, "models"),
    ],
)
def test_mistakes_in_a_recipe_are_told(
    place: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        validate(study, recipe(place, **changes), tmp_path, tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"top": 15}, "strongest heads lie in layer 0, which has only . other head"),
        ({"top": 17}, "top = 17: .* has 16 heads"),
        ({"repeated": 40}, "repeated=40: the model reads at most 64 tokens; give at most 31"),
    ],
)
def test_a_model_that_cannot_be_asked_this_says_why(
    place: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    asked = recipe(place, models={"gpt2": str(place / "gpt2")}, twins=False, **changes)
    with pytest.raises(RuntimeError, match=message):
        computed(asked, tmp_path / "run")


def test_encoders_and_models_without_a_language_head_are_refused(place: Path, tmp_path: Path) -> None:
    config = BertConfig(
        vocab_size=14, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    BertModel(config).save_pretrained(tmp_path / "bert")
    said = "is a BertModel, not a causal language model, .*`headwise roles` scores the heads of any model"
    with pytest.raises(RuntimeError, match=said):
        computed(recipe(place, models={"bert": str(tmp_path / "bert")}), tmp_path / "run")
    MultiTaskModel(LlamaModel.from_pretrained(place / "llama"), word_tokenizer(LANGUAGE), ()).save(
        tmp_path / "multi"
    )
    with pytest.raises(RuntimeError, match="is a LlamaModel, not a causal language model"):
        computed(recipe(place, models={"multi": str(tmp_path / "multi")}), tmp_path / "other")


def test_models_are_opened_on_the_gpu_where_there_is_one(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {}

    def open_model(model: Any, **options: Any) -> Any:
        asked.update(options)
        raise HeadwiseError("opened")

    monkeypatch.setattr("headwise.models._opening.open_model", open_model)
    with pytest.raises(RuntimeError, match="opened"):
        computed(recipe(place), tmp_path / "run")
    assert (asked["device"], asked["dtype"]) == ("auto", "float32")


def test_layers_without_enough_other_heads_are_named(place: Path) -> None:
    heads = Heads(GPT2LMHeadModel.from_pretrained(place / "gpt2"))
    assert spare_heads([(0, 1), (1, 0), (1, 7)], heads) == {0: [0, 2, 3, 4, 5, 6, 7], 1: [1, 2, 3, 4, 5, 6]}
    with pytest.raises(
        HeadwiseError, match="5 of the 6 strongest heads lie in layer 1, which has only 3 other heads"
    ):
        spare_heads([(0, 0), *((1, head) for head in range(5))], heads)
