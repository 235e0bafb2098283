"""CNM: tasks compared by how well their models' sentence vectors predict brain responses (Luo et al. 2022;
appendix D)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.io import loadmat

from headwise._base.unpacking import check_zip
from headwise.errors import HeadwiseError
from headwise.similarity._encoding import STRENGTHS, column_correlation, fit_ridge
from headwise.similarity._matrices import labelled
from headwise.tasks import read_table

Array = NDArray[Any]


@dataclass(frozen=True)
class BrainData:
    """Responses of participants to stimuli, and the sentences that stand for each stimulus.

    Args:
        stimuli: names, one per row of the responses.
        responses: by participant, (stimuli, voxels or components).
        sentences: the texts; each belongs to one stimulus.
        stimulus_of: (sentences,) the row each sentence belongs to; one sentence per row in order if None.
        groups: (stimuli,) rows of one group (a passage, say) are never split between training and test; each
            its own if None.
        components: the columns are principal components, so they are weighted by their variance in the
            comparison.
    """

    stimuli: tuple[str, ...]
    responses: Mapping[str, Array]
    sentences: tuple[str, ...]
    stimulus_of: Array | None = None
    groups: tuple[str, ...] | None = None
    components: bool = False
    source: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for participant, responses in self.responses.items():
            if responses.ndim != 2 or len(responses) != len(self.stimuli):
                raise HeadwiseError(
                    f"the responses of {participant} have shape {responses.shape}; "
                    f"expected {len(self.stimuli)} rows, one per stimulus"
                )
        rows = self.rows_of_sentences()
        if len(rows) != len(self.sentences) or set(rows.tolist()) != set(range(len(self.stimuli))):
            raise HeadwiseError(
                f"{len(self.sentences)} sentences do not cover the {len(self.stimuli)} stimuli: each needs "
                "at least one"
            )

    def rows_of_sentences(self) -> Array:
        """(sentences,) the stimulus each sentence belongs to."""
        if self.stimulus_of is None:
            return np.arange(len(self.sentences))
        return np.asarray(self.stimulus_of)

    def stimulus_vectors(self, vectors: Array) -> Array:
        """(sentences, dim) → (stimuli, dim): the mean of each stimulus' sentences."""
        rows = self.rows_of_sentences()
        total = np.zeros((len(self.stimuli), vectors.shape[1]))
        np.add.at(total, rows, vectors)
        return total / np.bincount(rows, minlength=len(self.stimuli))[:, None]


class Encoding(NamedTuple):
    """How well each task's vectors predict one participant: `scores` (tasks, folds × voxels kept), `weights`
    of these columns."""

    scores: Array
    weights: Array


def encoding_scores(
    vectors: Mapping[str, Array],
    data: BrainData,
    *,
    folds: int = 5,
    voxels: int = 5000,
    strengths: Sequence[float] = STRENGTHS,
    seed: int = 0,
    progress: Callable[[Any], Any] = iter,
) -> dict[str, Encoding]:
    """Held-out correlation of predicted and measured responses, per participant, fold and voxel.

    The strength is chosen per voxel by leave-one-out inside the training folds; so are the `voxels` most
    predictable ones (by their mean inner score over all tasks, so that every task is judged on the same
    voxels and none is favoured). Folds depend on the stimuli's names and the seed, not on their order.

    Args:
        vectors: by task, (sentences, dim).
        data: the responses.
        folds: outer folds.
        voxels: how many to keep, if there are more.
        strengths: ridge strengths.
        seed: of the folds.
        progress: wraps the iteration over participants (a progress bar).
    """
    features = {
        task: data.stimulus_vectors(np.asarray(of_task, dtype=float)) for task, of_task in vectors.items()
    }
    fold_of = _folds(data, folds, seed)
    encodings: dict[str, Encoding] = {}
    for participant in progress(list(data.responses)):
        responses = np.asarray(data.responses[participant], dtype=float)
        # empty voxels (outside the brain, or an empty last component) say nothing
        responses = responses[:, responses.std(0) > 0]
        scores, weights = [], []
        for fold in range(folds):
            train, test = fold_of != fold, fold_of == fold
            fits = {task: fit_ridge(x[train], responses[train], strengths) for task, x in features.items()}
            informative = np.mean([fit.inner for fit in fits.values()], axis=0)  # (voxels,)
            best = np.sort(np.argsort(-informative, kind="stable")[:voxels])
            correlations = []
            for task, fit in fits.items():
                predicted = features[task][test] @ fit.weights[:, best] + fit.intercept[best]
                correlations.append(column_correlation(predicted, responses[test][:, best]))
            scores.append(np.stack(correlations))  # (tasks, best)
            weights.append(responses[train][:, best].var(0) if data.components else np.ones(len(best)))
        encodings[participant] = Encoding(np.concatenate(scores, axis=1), np.concatenate(weights))
    return encodings


def cnm(vectors: Mapping[str, Array], data: BrainData, **settings: Any) -> xr.DataArray:
    """Cognitive-neural mapping: the cosine between two tasks' vectors of per-voxel scores, averaged over
    participants.

    Args:
        vectors: by task, (sentences, dim) for `data.sentences`.
        data: brain responses.
        settings: of `encoding_scores`.

    Returns:
        DataArray (task, other), 1 on the diagonal; attribute `mean_score` says how well each task predicts (0
        is chance).
    """
    names = list(vectors)
    encodings = encoding_scores(vectors, data, **settings)
    matrices, means = [], []
    for scores, weights in encodings.values():
        means.append(np.average(scores, axis=1, weights=weights))
        rows = scores * np.sqrt(weights)
        length = np.linalg.norm(rows, axis=1, keepdims=True)
        if (length == 0).any():
            raise HeadwiseError(
                f"the vectors of {names[int((length == 0).argmax())]} predict nothing at all: they are "
                "constant"
            )
        rows = rows / length
        matrices.append(rows @ rows.T)
    mean_score = {
        name: float(np.mean(of_task)) for name, of_task in zip(names, np.transpose(means), strict=True)
    }
    return labelled(
        np.mean(matrices, axis=0), names, "CNM", participants=list(encodings), mean_score=mean_score
    )


def read_pereira(
    path: str | Path, *, experiment: str = "180concepts_sentences", sentences: str | Path | None = None
) -> BrainData:
    """Reads the responses of Pereira et al. 2018, as published or reduced by principal components.

    Args:
        path: a folder with one sub-folder per participant holding `data_{experiment}.mat` or
            `examples_{experiment}.mat`; or a folder with `responses.npz`, `sentences.parquet` (concept,
            sentence) — its columns are principal components.
        experiment: "180concepts_sentences" (needs `sentences`), "384sentences" or "243sentences" (the files
            hold the texts).
        sentences: table (parquet or csv) with columns concept and sentence, for the concept experiment.
    """
    path = Path(path)
    if (path / "responses.npz").is_file():
        check_zip(path / "responses.npz")
        with np.load(path / "responses.npz", allow_pickle=False) as stored:
            responses = dict(zip(map(str, stored["participants"]), stored["responses"], strict=True))
            concepts = tuple(map(str, stored["concepts"]))
        return _with_concepts(concepts, responses, path / "sentences.parquet", True, str(path))
    files = sorted(path.glob(f"*/data_{experiment}.mat")) + sorted(path.glob(f"*/examples_{experiment}.mat"))
    if not files:
        raise HeadwiseError(
            f"no */data_{experiment}.mat or */examples_{experiment}.mat under {path}, and no responses.npz "
            "in it"
        )
    responses, stimuli, groups = {}, None, None
    for file in files:
        content = loadmat(file, simplify_cells=True)
        values, names = "examples_passagesentences", "keySentences"
        if "examples" in content:
            values, names = "examples", "keyConcept"
        if values not in content or names not in content:
            keys = sorted(key for key in content if not key.startswith("__"))
            raise HeadwiseError(
                f"{file} holds {keys}; expected examples and keyConcept, or examples_passagesentences and "
                "keySentences"
            )
        stimuli_of_file = tuple(map(str, content[names]))
        if stimuli is not None and stimuli_of_file != stimuli:
            raise HeadwiseError(f"{file} lists other stimuli, or in another order, than {files[0]}")
        stimuli = stimuli_of_file
        responses[file.parent.name] = np.asarray(content[values], dtype=np.float32)
        if "labelsPassageForEachSentence" in content:
            groups = tuple(map(str, np.ravel(content["labelsPassageForEachSentence"])))
    assert stimuli is not None
    if experiment.startswith("180"):
        if sentences is None:
            raise HeadwiseError(
                "the concept experiment's files hold no sentences: pass sentences=, a table with columns "
                "concept, sentence"
            )
        return _with_concepts(stimuli, responses, Path(sentences), False, str(path))
    return BrainData(stimuli, responses, stimuli, groups=groups, source=str(path))


def _with_concepts(
    concepts: tuple[str, ...], responses: dict[str, Array], table: Path, components: bool, source: str
) -> BrainData:
    if not table.is_file():
        raise HeadwiseError(
            f"{table} is missing: it gives the sentences of each concept (columns concept, sentence)"
        )
    frame = read_table(table)
    row = {name: i for i, name in enumerate(concepts)}
    unknown = sorted(set(frame["concept"]) - set(row))
    if unknown:
        raise HeadwiseError(f"{table} has sentences for concepts without responses: {unknown[:5]}")
    stimulus_of = frame["concept"].map(row).to_numpy()
    return BrainData(
        concepts, responses, tuple(frame["sentence"]), stimulus_of, components=components, source=source
    )


def _folds(data: BrainData, folds: int, seed: int) -> Array:
    groups = np.asarray(data.groups if data.groups is not None else data.stimuli)
    names = np.unique(groups)
    if len(names) < folds or folds < 2:
        raise HeadwiseError(
            f"{folds} folds need at least 2 and at most as many stimuli or groups as there are: {len(names)}"
        )
    shuffled = names[np.random.default_rng(seed).permutation(len(names))]
    fold_of = {name: place % folds for place, name in enumerate(shuffled)}
    return np.array([fold_of[group] for group in groups])
