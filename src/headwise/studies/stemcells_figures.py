"""All figures of a finished stem-cell study."""

from pathlib import Path

from headwise import runs
from headwise.figures import save
from headwise.figures import stemcells as draw
from headwise.names import file_name
from headwise.studies.stemcells import stem_cells


def figures(run_folder: str | Path, out: str | Path | None = None) -> list[Path]:
    """Draws what a study found; PDF and PNG of each figure.

    Args:
        run_folder: the study's folder.
        out: where the files go; default: "figures" in that folder.
    """
    run = runs.open(run_folder)
    place = Path(out) if out is not None else Path(run_folder) / "figures"
    files: list[Path] = []
    methods = list(dict.fromkeys(run.table("stem-cells")["gates"]))
    for method in methods:
        name = file_name(method)
        claims = run.array(f"claims-{name}").astype(bool)
        layers = int(claims.sizes["layer"])
        files += save(draw.claims_overlay(claims), place / f"claims-{name}")
        if method.endswith("random weights"):
            continue
        files += save(draw.stem_cell_map(claims, stem_cells(claims)), place / f"stem-cells-{name}")
        for value in ("overlap", "spearman"):
            files += save(draw.task_overlap(run.table(f"agreement-{name}"), value), place / f"{value}-{name}")
    labels = run.table("labels")
    own = labels[labels["subject"] == "model"]
    stages = {stage: own[own["stage"] == stage] for stage in dict.fromkeys(own["stage"])}
    for stage, table in stages.items():
        average = table.groupby(["task", "label"], sort=False)[["layer", "recall", "gold"]].mean().reset_index()
        files += save(draw.best_layers(average, layers), place / f"best-layers-{stage}")
    for stage in ("multi", "iat"):
        if stage in stages:
            changed = draw.label_changes(stages["single"], stages[stage], names=("single", stage))
            files += save(changed, place / f"label-changes-{stage}")
    files += save(draw.effects(run.table("effects")), place / "effects")
    return files
