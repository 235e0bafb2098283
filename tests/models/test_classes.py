"""Classes of tasks and outputs of models are matched by name: a model whose outputs and names are permuted together is the same model."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertForTokenClassification, BertModel

import headwise as hw
from headwise import grammar
from headwise.app.session import Session
from headwise.errors import HeadwiseError
from headwise.models import MultiTaskModel, SavedTask, as_task_model, open_model
from headwise.models._classes import numbering, renumbered
from headwise.tasks import Examples, Sentence, Task, batches, encode
from headwise.tasks._kinds import KINDS
from headwise.training import TrainerData, TrainerModel, few_shot
from words import BERT, word_tokenizer

WORDS = ["cat", "dog", "tree", "sun", "rain", "hill"]
SIZE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 10,
}
NLI = ("contradiction", "entailment", "neutral")
TURNED = [2, 0, 1]  # the output that stands at each place afterwards
NAMES = [NLI[i] for i in TURNED]
TOKENIZER = word_tokenizer([*BERT, *WORDS], "[CLS]", "[SEP]", model_max_length=32)


def texts(n: int = 24) -> list[str]:
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(WORDS, draw.integers(2, 7))) for _ in range(n)]


def nli(classes: tuple[str, ...] = NLI) -> Task:
    """Which class a text has follows from its first word."""
    rows = [(text, NLI[WORDS.index(text.split()[0]) % 3]) for text in texts()]
    return Task("nli", data={"train": rows, "validation": rows}, kind="classes", classes=classes)


def tags(classes: tuple[str, ...] | None = None) -> Task:
    names = ["O", "B-PER", "I-PER"]
    sentences = [
        Sentence(tuple(text.split()), upos=tuple(names[WORDS.index(w) % 3] for w in text.split()))
        for text in texts()
    ]
    return Task("ner", data={"train": sentences, "validation": sentences}, kind="tags", classes=classes)


def named(model: Any, names: Any) -> Any:
    model.config.id2label = dict(enumerate(names))
    return model.eval()


def classifier(names: Any = NLI, kind: Any = BertForSequenceClassification) -> Any:
    torch.manual_seed(0)
    return named(kind(BertConfig(**SIZE, num_labels=len(names), initializer_range=0.5)), names)


def permuted(model: Any, order: list[int] = TURNED, spell: Any = str) -> Any:
    """The same classifier with the rows of its last layer, and their names, in another order."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.classifier.weight.copy_(model.classifier.weight[order])
        other.classifier.bias.copy_(model.classifier.bias[order])
    return named(other, [spell(model.config.id2label[i]) for i in order])


def answers(model: Any, task: Task) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    (batch,) = batches(encode(task.split("train"), TOKENIZER, 16), 64)
    with torch.no_grad():
        output = model(task.name, batch)
    back = batch.index.argsort()
    return output.loss[back], output.prediction[back], output.logits[back]


@pytest.mark.parametrize("spell", [str, str.upper])
@pytest.mark.parametrize(
    ("kind", "make"), [(BertForSequenceClassification, nli), (BertForTokenClassification, tags)]
)
def test_a_permuted_classifier_answers_as_before(kind: Any, make: Any, spell: Any) -> None:
    task = make()
    model = classifier(task.classes, kind)
    expected = answers(as_task_model(model, TOKENIZER, task), task)
    for found, right in zip(
        answers(as_task_model(permuted(model, spell=spell), TOKENIZER, task), task), expected, strict=True
    ):
        torch.testing.assert_close(found, right)


def test_predictions_and_losses_are_those_of_the_models_own_names() -> None:
    """Text by text, against the names of transformers' own outputs."""
    model, task = permuted(classifier()), nli()
    loss, prediction, logits = answers(as_task_model(model, TOKENIZER, task), task)
    for i, text in enumerate(texts()):
        with torch.no_grad():
            own = model(**TOKENIZER(text, return_tensors="pt")).logits[0]
        label = NLI[WORDS.index(text.split()[0]) % 3]
        assert task.classes[prediction[i]] == NAMES[int(own.argmax())]
        torch.testing.assert_close(
            loss[i], torch.nn.functional.cross_entropy(own, torch.tensor(NAMES.index(label)))
        )
        torch.testing.assert_close(logits[i], own[[NAMES.index(name) for name in NLI]])


@pytest.mark.parametrize("operation", ["score", "lesion", "evaluate", "app"])
def test_operations_do_not_depend_on_the_order_of_outputs(operation: str) -> None:
    task, model = nli(), classifier()

    def run(one: Any) -> Any:
        options: Any = {"tokenizer": TOKENIZER, "quiet": True}
        if operation == "score":
            return hw.score(one, task, **options).to_numpy()
        if operation == "lesion":
            return hw.lesion(one, [task], [hw.HeadSet([(0, 1)])], **options).performance.to_numpy()
        answering = open_model(one, task, tokenizer=TOKENIZER)
        if operation == "evaluate":
            return hw.training.evaluate(answering, task, quiet=True).score
        (found,) = Session(answering, [task]).predict(texts()[0], "", [])
        return np.array([dict(zip(found["classes"], found["intact"], strict=True))[name] for name in NLI])

    np.testing.assert_allclose(run(permuted(model)), run(model), rtol=1e-5)


def test_outputs_that_are_no_class_of_the_task_are_wrong_answers() -> None:
    """A model of three classes on data that show two: its losses are its own, and the third class is never right."""
    model = permuted(classifier())
    rows = [(text, NLI[i % 2]) for i, text in enumerate(texts())]
    task = Task("nli", data={"train": rows}, kind="classes")
    assert task.classes == NLI[:2]
    loss, prediction, _ = answers(as_task_model(model, TOKENIZER, task), task)
    with torch.no_grad():
        own = torch.cat([model(**TOKENIZER(text, return_tensors="pt")).logits for text in texts()])
    names = [NAMES[i] for i in own.argmax(1).tolist()]
    assert "neutral" in names
    assert [(*task.classes, "neutral")[i] for i in prediction.tolist()] == names
    gold = torch.tensor([NAMES.index(label) for _, label in rows])
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(own, gold, reduction="none"))
    assert task.score(prediction, task.split("train").labels) == np.mean(
        [a == b for a, (_, b) in zip(names, rows, strict=True)]
    )


def test_names_match_apart_from_case_spaces_and_underscores() -> None:
    assert numbering(["NOT_ENTAILMENT", "Entailment"], ["entailment", "not entailment"], "rte").outputs == (
        1,
        0,
    )
    assert numbering(["nn", "NN"], ["NN", "nn"], "pos").outputs == (1, 0)  # names that differ in case alone
    assert numbering(["O", "I-PER", "B-PER"], ["B-PER", "I-PER", "O"], "ner").outputs == (2, 1, 0)
    assert numbering(["o", "i_per", "b_per", "b_loc"], ["B-PER", "I-PER", "O"], "ner").outputs == (2, 1, 0)
    assert numbering(["not-entailment", "Entailment"], ["entailment", "not_entailment"], "rte").outputs == (
        1,
        0,
    )
    assert numbering(["caf\u00e9", "tea"], ["tea", "cafe\u0301"], "drinks").outputs == (1, 0)


PLACEHOLDERS = [f"LABEL_{i}" for i in range(12)]


@pytest.mark.parametrize(
    ("names", "classes", "outputs"),
    [
        (PLACEHOLDERS, sorted(map(str, range(12))), (0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9)),
        (PLACEHOLDERS[:3], ["0", "2"], (0, 2)),
        (["LABEL_2", "LABEL_0", "LABEL_1"], ["0", "1", "2"], (1, 2, 0)),
        (["LABEL_2", "LABEL_0", "LABEL_1"], ["a", "b", "c"], (1, 2, 0)),
        (PLACEHOLDERS[:3], ["1", "2", "3"], (0, 1, 2)),
        (["3 stars", "2 stars", "1 star"], ["1", "2", "3"], (2, 1, 0)),
        (["1 star", "2 stars", "3 stars"], ["0", "1", "2"], (0, 1, 2)),
        (["NEGATIVE", "POSITIVE"], ["0", "1"], (0, 1)),
        (PLACEHOLDERS[:3], ["1", "2"], None),
        (PLACEHOLDERS[:3], ["a", "b"], None),
        (["LABEL_0"], ["0", "1"], None),
    ],
    ids=[
        "ten and more", "some of LABEL_0...", "permuted", "permuted under names", "counted from 1", "stars backwards", "stars from 0",
        "names under numbers", "some, perhaps counted from 1", "some under names", "one output for two classes",
    ],
)  # fmt: skip
def test_outputs_that_are_called_by_numbers_are_known_by_these(
    names: Any, classes: Any, outputs: Any
) -> None:
    """Whole numbers are the class names of data with integer labels; that they were used is said, since no name was equal."""
    if outputs is None:
        with pytest.raises(HeadwiseError, match="do not fit the outputs of the model"):
            numbering(names, classes, "t")
        return
    found = numbering(names, classes, "t")
    assert found.outputs == outputs
    assert f"{names[outputs[0]]} as {classes[0]}, {names[outputs[1]]} as {classes[1]}" in found.note


def test_a_permuted_classifier_without_names_is_the_same_model(tmp_path: Any) -> None:
    """LABEL_0, LABEL_1, ... permuted with their rows, data that show two of three integer labels; saved, opened and in the app."""
    plain = classifier(PLACEHOLDERS[:3])
    rows = [(text, 2 * (i % 2)) for i, text in enumerate(texts())]
    task = Task("nli", data={"train": rows, "validation": rows}, kind="classes")
    assert task.classes == ("0", "2")
    with pytest.warns(UserWarning, match="LABEL_0 as 0, LABEL_2 as 2"):
        right, turned = (open_model(model, task, tokenizer=TOKENIZER) for model in (plain, permuted(plain)))
    for found, expected in zip(answers(turned, task), answers(right, task), strict=True):
        torch.testing.assert_close(found, expected)
    turned.save(tmp_path / "saved")
    again = hw.load(tmp_path / "saved")
    assert again.tasks["nli"].classes == turned.tasks["nli"].classes == ("2", "0", "LABEL_1")
    torch.testing.assert_close(answers(again, task)[0], answers(right, task)[0])
    said = [Session(model, [task]).predict(texts()[0], "", [])[0] for model in (right, turned)]
    one, other = (dict(zip(found["classes"], found["intact"], strict=True)) for found in said)
    assert one == pytest.approx(other)


def test_an_evaluation_leaves_nothing_that_gradients_stumble_over() -> None:
    """What is made once for a model and a device was made by whoever came first: in inference mode, by a lesion."""
    task, model = nli(), permuted(classifier(("contradiction", "entailment", "neutral")))
    numbering.__globals__["_numbering"].cache_clear()
    hw.lesion(model, task, {}, tokenizer=TOKENIZER, quiet=True)
    assert hw.score(model, task, tokenizer=TOKENIZER, quiet=True).notnull().all()
    hw.train(
        model,
        task,
        "multi-task",
        tokenizer=TOKENIZER,
        epochs=1,
        batch_size=8,
        max_length=16,
        evaluate="epoch",
        quiet=True,
    )


def test_where_only_counts_fit_the_order_is_used_and_said() -> None:
    task, plain = nli(), classifier(("LABEL_0", "LABEL_1", "LABEL_2"))
    with pytest.warns(
        UserWarning,
        match="read in order: LABEL_0 as contradiction, LABEL_1 as entailment, LABEL_2 as neutral",
    ):
        answering = open_model(plain, task, tokenizer=TOKENIZER)
    for found, right in zip(
        answers(answering, task), answers(as_task_model(classifier(), TOKENIZER, task), task), strict=True
    ):
        torch.testing.assert_close(found, right)
    with pytest.warns(UserWarning, match="read in order"):
        scores = hw.score(plain, task, tokenizer=TOKENIZER, quiet=True)
    assert "LABEL_0 as contradiction" in scores.attrs["by_order"]["nli"]
    assert "by_order" not in hw.score(classifier(), task, tokenizer=TOKENIZER, quiet=True).attrs


@pytest.mark.parametrize(
    "names",
    [
        ("negative", "positive"),
        ("neutral", "contradiction", "entails"),
        ("O", "B-PER", "I-PER", "B-LOC"),
        ("contradiction", "entailment", "unrelated"),
        ("entailment", "entailment", "entailment"),
    ],
    ids=["fewer", "names contradict the order", "more", "all but one name", "one name"],
)
def test_classes_that_do_not_fit_are_refused_with_both_lists(names: tuple[str, ...]) -> None:
    both = (
        f"The task has 3: contradiction, entailment, neutral; the model has {len(names)}: {', '.join(names)}"
    )
    with pytest.raises(HeadwiseError, match=both):
        open_model(classifier(names), nli(), tokenizer=TOKENIZER)


def test_a_head_whose_configuration_counts_other_outputs_is_refused() -> None:
    model = classifier()
    model.classifier = torch.nn.Linear(16, 5)
    task = nli()
    with pytest.raises(HeadwiseError, match="gives 5 outputs, and its configuration names 3"):
        answers(as_task_model(model, TOKENIZER, task), task)


def test_numbers_need_one_output() -> None:
    task = Task("warmth", data={"train": [(text, i / 7) for i, text in enumerate(texts())]}, kind="number")
    assert answers(as_task_model(classifier(["LABEL_0"]), TOKENIZER, task), task)[1].shape == (24,)
    with pytest.raises(HeadwiseError, match="needs 1 output, the model's head has 3"):
        as_task_model(classifier(), TOKENIZER, task)


def multi(task: Task) -> MultiTaskModel:
    torch.manual_seed(0)
    encoder = BertModel(BertConfig(**SIZE, initializer_range=0.5)).eval()
    model = MultiTaskModel(encoder, TOKENIZER, [task]).eval()
    with torch.no_grad():
        for parameter in model.decoders.parameters():
            parameter.normal_(std=0.5)
    return model


@pytest.mark.parametrize("kind", ["classes", "tags"])
def test_a_multi_task_model_knows_its_classes_by_name(kind: str) -> None:
    make = nli if kind == "classes" else tags
    task = make()
    other = make(tuple(reversed(task.classes)))
    model = multi(task)
    right, found = answers(model, task), answers(model, other)
    torch.testing.assert_close(found[0], right[0])
    torch.testing.assert_close(found[2], right[2].flip(-1))
    if kind == "tags":
        torch.testing.assert_close(found[1], right[1])
    else:
        assert [other.classes[i] for i in found[1].tolist()] == [task.classes[i] for i in right[1].tolist()]
    assert (
        hw.training.evaluate(model, other, quiet=True).score
        == hw.training.evaluate(model, task, quiet=True).score
    )


@pytest.fixture(scope="module")
def treebank_tasks() -> list[Task]:
    return grammar.tasks(["ner", "dep", "con", "srl"], size=16, held_out=16)


@pytest.mark.parametrize("number", range(4), ids=["ner", "dep", "con", "srl"])
def test_structured_classes_are_known_by_name(treebank_tasks: list[Task], number: int) -> None:
    task = treebank_tasks[number]
    kind, examples = KINDS[task.kind], task.split("train")
    fixed = 1 if kind.first else 0  # the predicate is always number 0
    classes = (*task.classes[:fixed], *reversed(task.classes[fixed:]))
    labels = []
    for rows in examples.labels:
        other = rows.copy()
        for row in other:
            row[kind.class_column] = (
                classes.index(task.classes[row[kind.class_column]])
                if row[kind.class_column] >= 0
                else row[kind.class_column]
            )
        labels.append(other)
    turned = Examples(examples.texts, labels, task.kind, classes, examples.sentences)
    tokenizer = word_tokenizer(
        [*BERT, *sorted({w for s in examples.sentences or [] for w in s.words})], "[CLS]", "[SEP]"
    )
    torch.manual_seed(0)
    encoder = BertModel(BertConfig(**{**SIZE, "vocab_size": len(tokenizer)}, initializer_range=0.5))
    model = MultiTaskModel(encoder, tokenizer, [task]).eval()
    with torch.no_grad():
        for parameter in model.decoders.parameters():
            parameter.normal_(std=0.1)
        right, found = (
            model(task.name, next(iter(batches(encode(one, tokenizer, 64), 8)))) for one in (examples, turned)
        )
    torch.testing.assert_close(found.loss, right.loss)
    torch.testing.assert_close(found.prediction, right.prediction)


def test_a_model_that_trains_on_keeps_the_names_of_its_outputs(tmp_path: Any) -> None:
    """What a saved model remembers is the order of its outputs, not that of the task it last saw."""
    model = permuted(classifier())
    found = hw.train(
        model, nli(), tokenizer=TOKENIZER, out=tmp_path, epochs=1, batch_size=8, max_length=16, quiet=True
    )
    assert found.model.tasks["nli"].classes == tuple(model.config.id2label.values())
    again = hw.load(tmp_path)
    for one, other in zip(answers(again, nli()), answers(found.model, nli()), strict=True):
        torch.testing.assert_close(one, other)
    assert again.tasks["nli"].classes == found.model.tasks["nli"].classes


def test_few_shot_is_judged_on_classes_by_name() -> None:
    task = nli()
    other = nli(tuple(reversed(NLI))).split("validation")
    options: Any = {"epochs": 1, "max_length": 16, "quiet": True}
    right = few_shot(multi(task), task, 6, [0], **options)
    found = few_shot(multi(task), task, 6, [0], evaluate_on=other, **options)
    np.testing.assert_allclose(found["loss"], right["loss"], rtol=1e-4)
    np.testing.assert_array_equal(2 - found["prediction"], right["prediction"])
    assert float(found["score"][0]) == float(right["score"][0])


def test_a_trainers_batches_bring_their_classes() -> None:
    task, other = nli(), nli(tuple(reversed(NLI)))
    model = TrainerModel(multi(task))
    losses = []
    for one in (task, other):
        data = TrainerData([one], TOKENIZER, max_length=16)
        losses.append(model(**data.collate([data[i] for i in range(8)]))["loss"].item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_task_of_another_kind_under_the_same_name_is_refused() -> None:
    number = Task("nli", data={"train": [(text, i / 7) for i, text in enumerate(texts())]}, kind="number")
    with pytest.raises(
        HeadwiseError, match="'nli' is of kind 'number', and the model has learnt it as 'classes'"
    ):
        open_model(multi(nli()), number)


def test_models_that_differ_in_their_names_alone_do_not_share_a_result(tmp_path: Any) -> None:
    """A result is kept under the order of outputs too: one of before they were matched by name is not shown."""
    task, model = nli(), classifier()
    options: Any = {"tokenizer": TOKENIZER, "quiet": True, "out": tmp_path / "scores"}
    hw.score(model, task, **options)
    with pytest.raises(HeadwiseError, match="the model's configuration changed"):
        hw.score(named(copy.deepcopy(model), NAMES), task, **options)
    several = multi(task)
    turned = copy.deepcopy(several)
    turned.tasks["nli"] = SavedTask("nli", "classes", tuple(NAMES), "accuracy")
    hw.score(several, task, **{**options, "out": tmp_path / "several"})
    with pytest.raises(HeadwiseError, match="outputs of the model for classes"):
        hw.score(turned, task, **{**options, "out": tmp_path / "several"})
    permuted(model).save_pretrained(tmp_path / "model")
    TOKENIZER.save_pretrained(tmp_path / "model")
    assert renumbered(tmp_path / "model", [task]) == {"nli": [NAMES.index(name) for name in NLI]}
    assert not renumbered(model, [task])


def test_saved_tasks_say_the_order_of_outputs() -> None:
    model = as_task_model(permuted(classifier()), TOKENIZER, SavedTask("nli", "classes", NLI, "accuracy"))
    assert model.tasks["nli"].classes == ("neutral", "contradiction", "entailment")
