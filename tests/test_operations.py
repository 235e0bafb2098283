"""Every operation: its function, its verb and its recipe table have the same names, defaults, bounds and help, from one class."""

import inspect
import subprocess
import sys
from typing import Any

import pytest
import typer

import headwise as hw
from headwise import studies
from headwise.behaviour import Roles
from headwise.cli import app
from headwise.cli.verbs import flag, options_of
from headwise.errors import HeadwiseError
from headwise.evaluation import Evaluating
from headwise.harness import Evaluate, run_harness
from headwise.lesions import Dissociate, Lesion
from headwise.probing import Generate, Probe, Profiling, generate, profile
from headwise.probing._settings import Probing, ProbingTasks
from headwise.scoring import ESTIMATORS, Reading, Score, gate_gradient
from headwise.settings import Settings, checked, marks
from headwise.similarity import Similarity
from headwise.steering import Steer
from headwise.studies import StemCells
from headwise.studies._probing_finetuning import FineTuningRecipe
from headwise.studies._probing_study import ProbingRecipe
from headwise.studies._similarity_study import SimilarityRecipe
from headwise.studies._specialization import SpecializationRecipe
from headwise.studies._stemcells_study import StemCellRecipe
from headwise.studies._training import TrainingRecipe
from headwise.studies._transfer import transfer
from headwise.studies._transfer_study import TransferRecipe
from headwise.tasks._source import TaskSource
from headwise.training import FewShot, Train, few_shot
from headwise.training._settings import Shots, Transfer

FUNCTIONS: dict[str, tuple[Any, type[Settings]]] = {
    "score": (hw.score, Score),
    "evaluate": (hw.evaluate, Evaluating),
    "lesion": (hw.lesion, Lesion),
    "dissociate": (hw.dissociate, Dissociate),
    "probe": (hw.probe, Probing),
    "generate": (generate, Generate),
    "roles": (hw.roles, Roles),
    "steer": (hw.steer, Steer),
    "eval": (run_harness, Evaluate),
    "similarity": (studies.similarity_study, Similarity),
    "profile": (profile, Profiling),
    "stemcells": (studies.stem_cell_study, StemCells),
    "train": (hw.train, Train),
    "few-shot": (few_shot, FewShot),
    "transfer": (transfer, Transfer),
}
VERBS: dict[str, list[type[Settings]]] = {
    "score": [TaskSource, Score],
    "dissociate": [TaskSource, Dissociate],
    "train": [TaskSource, Train],
    "transfer": [TaskSource, Transfer],
    "probe": [ProbingTasks, Probe],
    "roles": [Roles],
    "steer": [TaskSource, Steer],
    "eval": [Evaluate],
    "similarity": [TaskSource, Similarity],
    "stemcells": [StemCells],
    "stemcells probe": [TaskSource, Profiling],
    "app": [TaskSource],
}
TABLES = [
    (SpecializationRecipe, "lesions", Dissociate),
    (SpecializationRecipe, "tasks", TaskSource),
    (ProbingRecipe, "probing", Probe),
    (ProbingRecipe, "tasks", ProbingTasks),
    (FineTuningRecipe, "probing", Probe),
    (TrainingRecipe, "tasks", TaskSource),
    (TransferRecipe, "tasks", TaskSource),
    (TrainingRecipe, "training", Train),
    (SpecializationRecipe, "training", Train),
    (FineTuningRecipe, "training", Train),
    (TransferRecipe, "fewshot", FewShot),
]


HOW_IT_RUNS = {
    *("device", "trust_remote_code", "quiet", "out", "way", "copies", "eval_batch_size"),
    *("graphs", "nonfinite_steps", "log_every", "checkpoint_minutes", "trackers"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_all_settings_decide_the_result_but_those_of_how_it_runs(name: str) -> None:
    """Live objects are keyed by their contents. Batches decide what is trained, and nothing else."""
    _, settings = FUNCTIONS[name]
    undeciding = HOW_IT_RUNS if issubclass(settings, Train | FewShot) else {*HOW_IT_RUNS, "batch_size"}
    for field, declared in settings.model_fields.items():
        noted = marks(declared)
        assert noted["live"] or noted["decides"] == (field not in undeciding), field


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_the_names_defaults_and_help_of_its_settings(name: str) -> None:
    function, settings = FUNCTIONS[name]
    parameters = inspect.signature(function).parameters
    for field, declared in settings.model_fields.items():
        assert parameters[field].default == declared.get_default()
        assert f"    {field}: {declared.description}" in (function.__doc__ or "")
    positional = [one for one in parameters.values() if one.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert set(parameters) == set(settings.model_fields) | {one.name for one in positional}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_an_option_for_every_setting_with_its_help_and_default(verb: str) -> None:
    group: Any = typer.main.get_command(app)
    for name in verb.split():
        group = group.commands[name]
    options = {name: param for param in group.params for name in param.opts}
    for table in VERBS[verb]:
        for field in options_of(table):
            declared, shown = table.model_fields[field], options[flag(field, table)]
            assert shown.help.startswith(declared.description)
            default = declared.get_default()
            if default not in (None, (), {}, False):
                parts = default if isinstance(default, tuple) else ("yes",) if default is True else (default,)
                assert all(str(part) in shown.help for part in parts)
        live = [field for field in table.model_fields if field not in options_of(table)]
        assert not any(flag(field, table) in options for field in live)


@pytest.mark.parametrize("name", ["quiet", "tokenizer", "heads", "bootstrap", "level", "trust_remote_code"])
def test_a_setting_of_many_operations_is_declared_once(name: str) -> None:
    declared = [
        settings.model_fields[name] for _, settings in FUNCTIONS.values() if name in settings.model_fields
    ]
    assert len(declared) > 1
    assert (
        len(
            {
                (field.description, field.default, str(field.metadata), str(field.annotation))
                for field in declared
            }
        )
        == 1
    )


def test_an_option_of_many_verbs_is_declared_once() -> None:
    group: Any = typer.main.get_command(app)
    found: dict[str, set[tuple[str, ...]]] = {}
    for verb in (
        *group.commands.values(),
        *group.commands["study"].commands.values(),
        group.commands["stemcells"],
    ):
        for param in verb.params:
            if {"--json", "--jobs", "--trust-remote-code"} & set(param.opts):
                found.setdefault(param.opts[-1], set()).add((param.help, *param.opts))
    assert set(found) == {"--json", "--jobs", "--trust-remote-code"}
    assert all(len(said) == 1 for said in found.values()), found


@pytest.mark.parametrize(("recipe", "field", "settings"), TABLES)
def test_a_recipes_table_is_the_settings_class(recipe: Any, field: str, settings: type[Settings]) -> None:
    assert recipe.model_fields[field].annotation is settings


def test_recipes_without_tables_are_the_settings_class_with_what_names_the_models() -> None:
    assert issubclass(SimilarityRecipe, Similarity)
    assert set(SimilarityRecipe.model_fields) - set(Similarity.model_fields) == {
        *("kind", "title", "models", "trained", "where", "tasks", "fewshot")
    }
    assert issubclass(StemCellRecipe, StemCells)
    assert set(StemCellRecipe.model_fields) - set(StemCells.model_fields) == {
        "kind",
        "title",
        "model",
        "training",
    }


def test_a_transfer_recipe_has_the_keys_of_its_settings() -> None:
    assert all(
        TransferRecipe.model_fields[name].description == field.description
        for name, field in Shots.model_fields.items()
    )


BOUNDS: dict[str, list[tuple[dict[str, Any], str]]] = {
    "steer": [({"top": 0}, "greater than or equal to 1"), ({"directions": "men"}, "did you mean 'mean'")],
    "eval": [({"limit": 0}, "greater than or equal to 1"), ({"level": 1.0}, "less than 1")],
    "roles": [({"window": 0}, "greater than or equal to 1"), ({"repeated": 1}, "greater than or equal to 2")],
    "dissociate": [
        ({"fraction": 30}, r"less than 1; a fraction is between 0 and 1 \(30 % is 0.3\)"),
        ({"random_draws": -1}, "greater than or equal to 0"),
    ],
    "probe": [
        ({"folds": 1}, "greater than or equal to 2"),
        ({"pairs": "togther"}, "did you mean 'together'"),
    ],
    "similarity": [
        ({"shots": 1}, "greater than or equal to 2"),
        ({"alternative": "les"}, "did you mean 'less'"),
    ],
    "stemcells": [({"runs": 1}, "greater than or equal to 2"), ({"fraction": 1.0}, "less than 1")],
    "train": [
        ({"epochs": 0}, "greater than or equal to 1"),
        ({"sampling": "anneal"}, "did you mean 'annealed'"),
    ],
    "transfer": [({"rank": 0}, "greater than or equal to 1"), ({"tuning": "fall"}, "did you mean 'full'")],
    "score": [({"examples": 0}, "greater than or equal to 1"), ({"silence": "mots"}, "did you mean 'most'")],
}


@pytest.mark.parametrize(
    ("name", "given", "said"), [(n, g, s) for n, cases in BOUNDS.items() for g, s in cases]
)
def test_bounds_hold_in_function_verb_and_table(name: str, given: dict[str, Any], said: str) -> None:
    function, settings = FUNCTIONS[name]
    ((field, value),) = given.items()
    with pytest.raises(HeadwiseError, match=said):
        function(None, [], **given)
    with pytest.raises(HeadwiseError, match=said):
        checked(settings, given)
    group: Any = typer.main.get_command(app)
    subjects = {
        "train": ["--model", "x", "--out", "x"],
        "transfer": ["--from", "x"],
        "similarity": ["--models", "x"],
    }
    asked = [] if name == "roles" else ["--tasks", "x"]
    with pytest.raises(HeadwiseError, match=f"{flag(field, settings)}: given .*{said}"):
        group.main(
            [name, *subjects.get(name, ["--model", "x"]), *asked, f"{flag(field, settings)}={value}"],
            standalone_mode=False,
        )


def test_every_estimator_declares_its_options_and_they_are_checked() -> None:
    for name, function in ESTIMATORS.items():
        assert issubclass(function.settings, Reading), name  # type: ignore[attr-defined]
    assert list(inspect.signature(gate_gradient).parameters)[-5:] == [
        "variant",
        "absolute",
        "divisor",
        "layer_norm",
        "min_max",
    ]
    assert Score(method="shapley", permutations=3).own == {"permutations": 3}  # type: ignore[call-arg]
    with pytest.raises(
        HeadwiseError, match=r"method 'shapley' has no option 'permutation' \(did you mean 'permutations'"
    ):
        checked(Score, {"method": "shapley", "permutation": 3})
    with pytest.raises(HeadwiseError, match="permutations: given 0"):
        checked(Score, {"method": "shapley", "permutations": 0})
    with pytest.raises(HeadwiseError, match=r"'shaply' is unknown \(did you mean 'shapley'"):
        checked(Score, {"method": "shaply"})


def test_the_batch_size_decides_only_where_scores_depend_on_it() -> None:
    assert "batch_size" not in Dissociate(batch_size=8).decides()
    assert Dissociate(batch_size=8, variant="bertology").decides()["batch_size"] == 8


ADDED = """
import headwise.lesions._settings as declared
from headwise.settings import option

class Dissociate(declared.Dissociate):
    severity: float = option(0.75, "How severe a lesion is.", gt=0, le=1)

declared.Dissociate = Dissociate  # as if the line stood in the class

import inspect
import headwise as hw
from headwise.cli import app
from headwise.errors import HeadwiseError
from headwise.engine._recipe import read_recipe
from headwise.studies._similarity_study import SimilarityRecipe
from headwise.studies._specialization import SpecializationRecipe
from typer.testing import CliRunner

assert inspect.signature(hw.dissociate).parameters["severity"].default == 0.75
assert "severity: How severe a lesion is." in hw.dissociate.__doc__
shown = " ".join(CliRunner().invoke(app, ["dissociate", "--help"]).output.split())
assert "--severity <float> How severe a lesion is. [default: 0.75]" in shown, shown
assert SpecializationRecipe.model_fields["lesions"].default.severity == 0.75
said = []
for wrong in (
    lambda: hw.dissociate(None, [], severity=2),
    lambda: CliRunner().invoke(app, ["dissociate", "--model", "x", "--severity", "2"], catch_exceptions=False),
    lambda: read_recipe(SpecializationRecipe, {"kind": "specialization", "lesions": {"severity": 2}}, "."),
):
    try:
        wrong()
    except HeadwiseError as error:
        said.append("less than or equal to 1" in str(error) and "severity" in str(error))
assert said == [True, True, True], said
print("all three")
"""


def test_an_option_added_in_one_line_appears_in_function_verb_and_recipe() -> None:
    found = subprocess.run([sys.executable, "-c", ADDED], capture_output=True, text=True)
    assert found.stdout.strip() == "all three", found.stderr


def test_a_number_too_large_for_a_float_is_refused_in_one_line() -> None:
    """A recipe's values reach the bounds as they were written; the message may not compute with them."""
    from headwise.engine._recipe import read_recipe
    from headwise.studies._stemcells_settings import StemCells

    with pytest.raises(
        HeadwiseError,
        match=r"^fraction: given 1000+… \(401 characters\); must be less than 1; a fraction is between 0 and 1$",
    ):
        read_recipe(StemCells, {"fraction": 10**400}, ".")
