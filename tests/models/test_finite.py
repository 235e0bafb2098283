"""A model that gives no numbers is refused wherever its answers are read: its weights are NaN, or its outputs are."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from transformers import AutoModelForSequenceClassification, BertConfig

import headwise as hw
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.models import MultiTaskModel, as_task_model
from headwise.models._finite import check_answers, nan_weight
from headwise.probing import _fits as fits
from headwise.probing._logistic import Fit
from headwise.probing._results import ranked_heads
from headwise.scoring import ESTIMATORS, bottom_heads, gate_gradient, score, top_heads
from headwise.tasks import Task
from headwise.training import evaluate
from headwise.training._evaluation import evaluate as ask

sys.path.append(str(Path(__file__).parents[1] / "training"))
import toy

TASKS = [toy.task("mood", 24), toy.task("animal", 24)]
QUIET: dict[str, Any] = {"quiet": True}
OPERATIONS: dict[str, Any] = {
    "score": lambda model: hw.score(model, TASKS[0], **QUIET),
    "lesion": lambda model: hw.lesion(model, TASKS, [HeadSet([(0, 1)])], **QUIET),
    "dissociate": lambda model: hw.dissociate(model, TASKS, **QUIET),
    "probe": lambda model: hw.probe(model, TASKS[0], **QUIET),
    "train": lambda model: hw.train(model, TASKS, "multi-task", epochs=1, device="cpu", **QUIET),
    "evaluate": lambda model: evaluate(model, TASKS[0], **QUIET),
}


def model(weight: str = "") -> MultiTaskModel:
    """A model one value of which is NaN."""
    made = toy.model(TASKS).eval()
    if weight:
        with torch.no_grad():
            made.get_parameter(weight).view(-1)[-1] = torch.nan
    return made


@pytest.mark.parametrize(
    "weight", ["decoders.animal.out.weight", "encoder.encoder.layer.1.attention.self.query.bias"]
)
@pytest.mark.parametrize("name", OPERATIONS)
def test_weights_that_are_nan_are_refused(name: str, weight: str) -> None:
    OPERATIONS[name](model())
    with pytest.raises(HeadwiseError, match=f"{weight} of this MultiTaskModel holds NaN"):
        OPERATIONS[name](model(weight))


def test_a_folder_with_such_weights_is_refused(tmp_path) -> None:
    model("decoders.mood.out.bias").save(tmp_path / "model")
    with pytest.raises(HeadwiseError, match=r"decoders\.mood\.out\.bias of this MultiTaskModel holds NaN"):
        hw.score(tmp_path / "model", TASKS[0], **QUIET)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_only_nan_is_refused_and_not_large_or_infinite_weights(dtype: torch.dtype) -> None:
    module = torch.nn.Linear(64, 64).to(dtype)
    with torch.no_grad():
        module.weight.fill_(torch.finfo(dtype).max)  # their sum overflows
        module.bias[3] = -torch.inf  # some models have such masks
    assert nan_weight(module) == ""
    with torch.no_grad():
        module.bias[-1] = torch.nan
    assert nan_weight(module) == "bias"
    module.register_buffer("scale", torch.tensor([1, 2]))
    assert nan_weight(torch.nn.Linear(2, 2, device="meta")) == ""


FIRST = -0.002  # about half of the texts have a higher one


class Spoilt(torch.nn.Module):
    """The last layer of a classifier, whose outputs are no numbers for texts whose first feature is high."""

    def __init__(self, layer: torch.nn.Linear, value: float) -> None:
        super().__init__()
        self.layer, self.value = layer, value
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x[:, :1] > FIRST, self.value, self.layer(x))


def spoilt(value: float) -> Any:
    """A classifier with finite weights and, for some texts, no finite logit."""
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = BertConfig(
        **size, vocab_size=25, max_position_embeddings=64, id2label=dict(enumerate(TASKS[0].classes))
    )
    made = AutoModelForSequenceClassification.from_config(config).eval()
    made.classifier = Spoilt(made.classifier, value)
    return as_task_model(made, toy.tokenizer(), TASKS[0])


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_texts_without_a_finite_logit_are_refused(value: float) -> None:
    made = spoilt(value)
    for said, run in {
        r"outputs are NaN or infinite for \d+ of 24 examples": [
            lambda: hw.lesion(made, TASKS[0], [HeadSet([(0, 1)])], **QUIET),
            lambda: score(made, TASKS[0], method="ablation", **QUIET),
            lambda: score(made, TASKS[0], method="ablation", measure="metric", **QUIET),
            lambda: score(made, TASKS[0], method="shapley", permutations=1, **QUIET),
            lambda: evaluate(made, TASKS[0], **QUIET),
        ],
        r"outputs are NaN or infinite for some of 24 examples": [  # though gradients do not reach what was replaced
            lambda: score(made, TASKS[0], method="gate-gradient", **QUIET),
            lambda: score(made, TASKS[0], method="taylor-mean", **QUIET),
        ],
        r"the loss of step 0 \(task 'mood', learning rate 0\.05\) is nan": [
            lambda: score(made, TASKS[0], method="l0", steps=3, **QUIET)
        ],
    }.items():
        for one in run:
            with pytest.raises(HeadwiseError, match=said):
                one()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_unlabelled_texts_without_a_finite_logit_get_no_class(value: float) -> None:
    """Of NaN the first class would be read off."""
    texts = [(row[0], "up") for row in TASKS[0].split("validation").texts]
    texts[0] = (texts[0][0], "down")
    asked = Task(
        "mood",
        data={"train": texts, "test": [text for text, _ in texts]},
        kind="classes",
        classes=["down", "up"],
    )
    made = spoilt(value)
    with pytest.raises(HeadwiseError, match="task 'mood': the model's outputs are NaN or infinite"):
        ask(made, asked, "test", quiet=True)
    made.encoder.classifier = made.encoder.classifier.layer
    assert set(ask(made, asked, "test", quiet=True).predictions) <= {0, 1}


def test_one_infinite_logit_is_an_answer() -> None:
    """Some models rule classes out by an infinite logit."""
    made = spoilt(torch.nan)
    made.encoder.classifier = made.encoder.classifier.layer
    with torch.no_grad():
        made.encoder.classifier.bias[0] = -torch.inf
    found = evaluate(made, TASKS[0], **QUIET)
    assert set(found.predictions) == {1}
    assert np.isinf(found.losses).any()


def test_answers_are_looked_at_lesion_by_lesion() -> None:
    predictions, losses = np.zeros((2, 5), dtype=np.int64), np.ones((2, 5))
    check_answers("mood", predictions, losses)
    losses[1, 3] = np.nan
    with pytest.raises(HeadwiseError, match="1 of 5 examples, first for number 3"):
        check_answers("mood", predictions, losses)
    check_answers("mood", predictions, losses, labelled=False)
    counts = np.zeros((2, 5, 3))
    counts[0, 4, 1] = np.nan
    with pytest.raises(HeadwiseError, match="1 of 5 examples, first for number 4"):
        check_answers("mood", counts, np.ones((2, 5)))


def test_scores_that_are_all_nan_are_not_ranked() -> None:
    scores = xr.DataArray(np.full((2, 3), np.nan), dims=("layer", "head"))
    for rank in (top_heads, bottom_heads):
        with pytest.raises(HeadwiseError, match="the scores are NaN for every head"):
            rank(scores, n=0)
    scores[0, 1], scores[1, 0] = 0.5, 0.25
    assert top_heads(scores, n=2) == HeadSet([(0, 1), (1, 0)])  # layers with fewer heads are padded with NaN
    with pytest.raises(HeadwiseError, match="the scores are NaN for every head"):
        ranked_heads(np.full((2, 3), np.nan))


def test_silenced_heads_may_have_no_score() -> None:
    silenced = HeadSet([(0, 1)])
    scores = gate_gradient(model(), TASKS[0], silenced=silenced, **QUIET)
    assert np.isnan(scores.values).sum() == 1
    assert (0, 1) not in top_heads(scores, n=7)


def test_recordings_and_probes_of_states_that_are_no_numbers_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = model()

    def spoil(module: Any, args: Any, output: Any) -> Any:
        return torch.full_like(output, torch.nan)

    handle = made.encoder.encoder.layer[1].output.dense.register_forward_hook(spoil)
    with pytest.raises(HeadwiseError, match="states are NaN or infinite, so there is nothing to record"):
        hw.probe(made, TASKS[0], **QUIET)
    handle.remove()
    asked = fits.Labels("classes", "accuracy", 2, *(np.arange(12) % 2 for _ in range(3)))
    features = {name: torch.randn(2, 12, 4) for name in fits.SPLIT_NAMES}
    fits.choose(features.__getitem__, asked, fits.Probe())
    for name in fits.SPLIT_NAMES:
        wrong = {**features, name: features[name].masked_fill(torch.arange(12)[:, None] == 7, torch.nan)}
        with pytest.raises(HeadwiseError, match="features hold NaN or infinite values"):
            fits.choose(wrong.__getitem__, asked, fits.Probe())
    large = {name: value * 1e25 for name, value in features.items()}
    with pytest.raises(HeadwiseError, match=r"features are as large as .*e\+25, too large to be squared"):
        fits.choose(large.__getitem__, asked, fits.Probe())

    def diverging(x: Any, y: Any, strengths: Any, **options: Any) -> Fit:
        found = ordinary(x, y, strengths, **options)
        found.weights[1, 0, 2] = torch.nan
        return found

    ordinary = fits.fit
    monkeypatch.setattr(fits, "fit", diverging)
    with pytest.raises(
        HeadwiseError,
        match=r"probes have weights that are NaN or infinite, first that of feature set 1 at L2 strength",
    ):
        fits.choose(features.__getitem__, asked, fits.Probe())


def test_scores_that_are_no_numbers_name_the_first_head() -> None:
    """Here the losses are numbers, and their gradients are not."""
    made = spoilt(torch.nan)
    made.encoder.classifier = made.encoder.classifier.layer
    made.encoder.classifier.register_forward_hook(
        lambda module, args, output: output + (0 * args[0][:, :1]).sqrt()
    )
    evaluate(made, TASKS[0], **QUIET)
    with pytest.raises(
        HeadwiseError, match=r"gives nan for 8 of 8 heads on task 'mood', first for head 0\.0"
    ):
        score(made, TASKS[0], method="gate-gradient", **QUIET)


def test_every_estimator_refuses_a_model_without_numbers() -> None:
    """Those that read no loss, like random, have numbers of their own."""
    made = spoilt(torch.nan)
    quick = {
        "subset": {"steps": 2},
        "causal-gating": {"steps": 2},
        "l0": {"steps": 2},
        "shapley": {"permutations": 1},
    }
    for name in sorted(
        set(ESTIMATORS) - {"random", "patching", "attribution-patching", "attention-attribution"}
    ):
        with pytest.raises(HeadwiseError, match=r"NaN or infinite|is nan"):
            score(made, TASKS[0], method=name, **quick.get(name, {}), **QUIET)
