"""Recipes that come with headwise are run by name, from any folder."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwise.cli import app
from headwise.engine._recipe import RecipeError, find_recipe

FILES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))


def test_all_recipes_are_listed_and_printed() -> None:
    listed = json.loads(CliRunner().invoke(app, ["study", "recipes", "--json"]).stdout)
    assert [row["recipe"] for row in listed] == [file.stem for file in FILES]
    assert all(row["title"] for row in listed)
    assert next(row for row in listed if row["recipe"] == "specialization-five")["scales"] == ["small"]
    assert (
        CliRunner().invoke(app, ["study", "recipes", "table5"]).stdout
        == (FILES[0].parent / "table5.toml").read_text()
    )


def test_a_recipe_by_name_is_checked_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        app,
        ["study", "validate", "specialization-five", "--scale", "small", "--json"],
        catch_exceptions=False,
    )
    assert json.loads(done.stdout)["cells"] > 0


def test_names_files_and_paths_of_recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data, base = find_recipe("similarity-small")
    assert (data["trained"], base) == ("runs/three", tmp_path)  # "../runs/three" in recipes/
    Path("training-small").write_text('kind = "mine"')  # a file of one's own comes first
    assert find_recipe("training-small")[0] == {"kind": "mine"}
    with pytest.raises(
        RecipeError, match=r"no recipe 'specialisation-five' \(did you mean 'specialization-five'\?\)"
    ):
        find_recipe("specialisation-five")
    with pytest.raises(
        RecipeError, match=r"there is no recipe .*/table5\.toml; `headwise study recipes` prints those"
    ):
        find_recipe("table5.toml")
