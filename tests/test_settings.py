"""Settings declared once: what the function, the verb and the recipe make of them."""

import inspect
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner

import headwise as hw
from headwise._passes.settings import Reading
from headwise.cli.verbs import verb
from headwise.errors import HeadwiseError
from headwise.settings import Settings, checked, operation, option
from headwise.training import Train


class Lesion(Settings):
    fraction: float = option(0.3, "Fraction of all heads that are silenced.", gt=0, lt=1)
    fractions: tuple[float, ...] = option((), "Further fractions.")
    how: Literal["zero", "mean"] = option("zero", "What a silenced head puts out: zero or mean.")
    examples: int | None = option(None, "At most this many examples.", ge=1)
    figures: bool = option(True, "Also draw figures.", decides=False)
    learning_rate: float = option(2e-5, "Learning rate.", also="--lr", gt=0)
    heads: Any = option(None, "The model's heads.", live=True)


@operation(Lesion)
def lesion(model: Any, tasks: Any, settings: Lesion) -> Lesion:
    """Silences heads.

    Args:
        model: any.
        tasks: any.

    Returns:
        the settings.
    """
    return settings


def run(*args: str) -> tuple[int, str, dict[str, Any]]:
    app, seen = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None), {}

    def body(settings: Lesion, model: Annotated[str, typer.Option("--model", "-m")]) -> None:
        """Silences heads."""
        seen.update(settings=settings, model=model)

    verb(app, "lesion", body)
    result = CliRunner().invoke(app, list(args))
    return result.exit_code, result.output + str(result.exception or ""), seen


def test_the_function_has_a_real_signature_and_docstring() -> None:
    parameters = inspect.signature(lesion).parameters
    assert list(parameters) == ["model", "tasks", *Lesion.model_fields]
    assert parameters["fraction"].default == 0.3
    assert parameters["fraction"].kind is inspect.Parameter.KEYWORD_ONLY
    assert "    fraction: Fraction of all heads that are silenced." in lesion.__doc__
    assert lesion.__doc__.index("fraction:") < lesion.__doc__.index("Returns:")


def test_function_and_verb_give_the_same_settings() -> None:
    one = lesion("m", [], fraction=0.2, fractions=[0.1, 0.5], how="mean", figures=False, learning_rate=1e-3)
    code, _, seen = run(
        "-m",
        "m",
        "--fraction",
        "0.2",
        "--fractions",
        "0.1",
        "0.5",
        "--how",
        "mean",
        "--no-figures",
        "--lr",
        "1e-3",
    )
    assert code == 0
    assert seen == {"settings": one, "model": "m"}
    assert run("-m", "m")[2]["settings"] == lesion("m", [])


def test_help_has_each_option_with_its_text_and_default_and_no_live_object() -> None:
    _, text, _ = run("--help")
    for name, field in Lesion.model_fields.items():
        assert (("--" + name.replace("_", "-")) in text) == (name != "heads")
        assert (field.description.split()[-1] in text) or name == "heads"
    assert "[default: 0.3]" in text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"fraction": 0}, "greater than 0"),
        ({"how": "meen"}, "'zero' or 'mean'; did you mean 'mean'"),
        ({"examples": 0}, "greater than or equal to 1"),
    ],
)
def test_bounds_are_those_of_the_declaration_everywhere(given: dict[str, Any], said: str) -> None:
    ((name, value),) = given.items()
    with pytest.raises(HeadwiseError, match=said) as function:
        lesion("m", [], **given)
    with pytest.raises(HeadwiseError, match=said):
        checked(Lesion, given)  # a recipe's table
    code, text, _ = run("-m", "m", f"--{name}", str(value))
    assert code
    assert said in text
    assert str(function.value).startswith(f"{name}: ")
    assert f"--{name}: given" in text


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(HeadwiseError, match="fracton: unknown key; did you mean 'fraction'"):
        lesion("m", [], fracton=0.2)
    with pytest.raises(HeadwiseError, match="too many positional"):
        lesion("m", [], "x")


def test_a_name_that_is_like_none_is_told_all_there_are() -> None:
    """`out` shares two of its letters with `quiet`, which is no reason to suggest it."""
    with pytest.raises(HeadwiseError, match=r"out: unknown key; allowed here: .*quiet"):
        checked(hw.lesion.settings, {"out": "folder"})


def test_what_decides_a_result_leaves_out_the_rest() -> None:
    found = lesion("m", [], heads=object(), fraction=0.2)
    assert found.decides() == {
        "fraction": 0.2,
        "fractions": (),
        "how": "zero",
        "examples": None,
        "learning_rate": 2e-5,
    }
    assert lesion("m", [], fraction=0.2).changed() == {"fraction": 0.2}


def test_settings_are_frozen() -> None:
    with pytest.raises(Exception, match="frozen"):
        lesion("m", []).fraction = 0.5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("settings", "given", "meant"),
    [
        (Train, {"precision": "float32"}, "no"),
        (Train, {"precision": "bfloat16"}, "bf16"),
        (Train, {"precision": "float16"}, "fp16"),
        (Reading, {"precision": "no"}, "float32"),
        (Reading, {"precision": "bfloat16"}, "bf16"),
        (Reading, {"dtype": "bf16"}, "bfloat16"),
    ],
)
def test_precisions_by_any_of_their_names(
    settings: type[Settings], given: dict[str, str], meant: str
) -> None:
    (name,) = given
    assert getattr(settings(**given), name) == meant


def test_a_precision_that_an_operation_lacks_is_refused() -> None:
    with pytest.raises(HeadwiseError, match="'float32', 'tf32' or 'bf16'"):
        checked(Reading, {"precision": "fp16"})


def test_settings_may_be_given_by_the_short_name_of_the_command_line() -> None:
    assert checked(Train, {"lr": 0.1}).learning_rate == 0.1
    with pytest.raises(HeadwiseError, match="learning_rate was given twice, as learning_rate and as lr"):
        checked(Train, {"lr": 0.1, "learning_rate": 0.2})
    with pytest.raises(HeadwiseError, match="warmupp"):
        checked(Train, {"warmupp": 0.1})
