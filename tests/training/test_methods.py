"""The compared methods: each does what its paper says, and what it trained is whole after saving."""

import shutil

import numpy as np
import pytest
import torch
import toy
from transformers import BertConfig, BertForSequenceClassification, BertModel

import headwise
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.models import MultiTaskModel, as_task_model
from headwise.tasks import batches, encode
from headwise.training import METHODS, TrainingRun, shallow, train
from headwise.training.methods import (
    MTDNN,
    Distil,
    FrozenEncoder,
    Houlsby,
    LoRA,
    Method,
    PruneLeast,
    TicketShare,
    make_method,
)

TASKS = [toy.task("mood", 50), toy.task("warmth", 40)]


def first_batch(model, task):
    return next(iter(batches(encode(task.split("validation"), model.tokenizer), 8)))


def ran(method, tasks=TASKS, family="bert", dropout=0.1, **changes):
    run = TrainingRun(toy.model(tasks, family, dropout), tasks, method, toy.settings(**changes))
    run.train()
    return run


def reloaded(run, folder):
    run.model.save(folder)
    again = headwise.load(folder)
    for task in run.tasks:
        batch = first_batch(run.model, task)
        with torch.no_grad():
            torch.testing.assert_close(
                again(task.name, batch).logits, run.model(task.name, batch).logits, rtol=0, atol=1e-6
            )
    return again


def test_frozen_encoder_stays_as_it_was(tmp_path) -> None:
    run = ran(FrozenEncoder())
    fresh = toy.model(TASKS)
    toy.assert_identical(toy.weights(run.model.encoder), toy.weights(fresh.encoder))
    assert not torch.equal(run.model.decoders["mood"].out.weight, fresh.decoders["mood"].out.weight)
    reloaded(run, tmp_path)


def test_mt_dnn_pools_all_batches_and_uses_adamax() -> None:
    run = ran(MTDNN(learning_rate=1e-3))
    assert isinstance(run.optimizer, torch.optim.Adamax)
    for epoch in run.plan.reshape(2, -1):
        assert np.bincount(epoch).tolist() == [stream.n_batches for stream in run.streams]


def test_pruning_masks_the_least_important_heads_in_forward_passes(tmp_path) -> None:
    run = ran(PruneLeast(alpha=0.4, delta=0.5))
    masks = run.method.heads
    assert {len(mask) for mask in masks.values()} == {3}
    again = reloaded(run, tmp_path)
    batch = first_batch(run.model, TASKS[0])
    with torch.no_grad():
        plain = run.model.decoders["mood"](run.model.states(batch), batch).logits
        with run.heads.silenced(masks["mood"]):
            silenced = run.model.decoders["mood"](run.model.states(batch), batch).logits
        torch.testing.assert_close(again("mood", batch).logits, silenced)
    assert not torch.allclose(plain, silenced)


def test_pruning_under_gradient_checkpointing_is_the_same() -> None:
    one, other = (ran(PruneLeast(delta=0.5), dropout=0.0, gradient_checkpointing=on) for on in (False, True))
    np.testing.assert_allclose(one.losses, other.losses, rtol=1e-4)


def test_ticket_share_finds_masks_off_the_reported_split_and_rewinds(tmp_path) -> None:
    method = TicketShare(ratios=(0.25, 0.5))
    seen = []

    class Spy(TicketShare):
        def prepare(self, run):
            super().prepare(run)
            seen.append(toy.weights(run.model))

    method.__class__ = Spy
    run = ran(method)
    fresh = toy.model(TASKS)
    for task in TASKS:
        fresh.standardise(task.name, task.split("train").labels)
    toy.assert_identical(seen[0], toy.weights(fresh))  # training starts from the initial weights
    assert {len(mask) for mask in method.heads.values()} <= {0, 2, 4}
    assert run.model.contexts.keys() == {"mood", "warmth"}
    # another validation split changes nothing: it plays no part
    others = [task.with_splits(validation=task.split("validation").subset([0, 1, 2])) for task in TASKS]
    again = ran(TicketShare(ratios=(0.25, 0.5)), others)
    assert again.method.heads == method.heads
    toy.assert_identical(toy.weights(again.model), toy.weights(run.model))
    reloaded(run, tmp_path)


def test_tickets_are_kept_for_a_resumed_training(tmp_path) -> None:
    first = TrainingRun(toy.model(TASKS), TASKS, TicketShare(), toy.settings(epochs=1), folder=tmp_path)
    (tmp_path / "tickets.json").write_text('{"mood": [[0, 1]], "warmth": []}')
    second = TrainingRun(toy.model(TASKS), TASKS, TicketShare(), toy.settings(epochs=1), folder=tmp_path)
    assert second.method.heads == {"mood": HeadSet([(0, 1)]), "warmth": HeadSet()}
    assert set(first.method.heads) == {"mood", "warmth"}


@pytest.mark.parametrize(
    "make", [lambda: LoRA(learning_rate=1e-2, rank=2), lambda: Houlsby(learning_rate=1e-2, size=4)]
)
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_adapters_leave_the_encoder_alone_and_belong_to_their_task(make, family, tmp_path) -> None:
    run = ran(make(), family=family)
    base = {
        name.replace(".base_layer", ""): value
        for name, value in toy.weights(run.model.encoder).items()
        if "lora_" not in name
    }
    toy.assert_identical(base, toy.weights(toy.model(TASKS, family).encoder))
    again = reloaded(run, tmp_path)
    batch = first_batch(run.model, TASKS[0])
    with torch.no_grad():
        plain = run.model.decoders["mood"](toy.model(TASKS, family).eval().states(batch), batch).logits
        assert not torch.allclose(again("mood", batch).logits, plain, atol=1e-5), (
            "the task's adapter must do something"
        )
        before = again("warmth", first_batch(again, TASKS[1])).logits
        for name, param in again.named_parameters():  # spoil the other task's adapter
            if ".mood." in name and ("lora_" in name or "adapters" in name):
                param.add_(1.0)
        assert torch.equal(again("warmth", first_batch(again, TASKS[1])).logits, before)


def test_houlsby_bottlenecks_follow_attention_and_feed_forward() -> None:
    run = ran(Houlsby(size=4), epochs=1)
    assert len(run.model.adapters["mood"]) == 2 * 2
    config = BertConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64, vocab_size=25
    )
    plain = as_task_model(BertForSequenceClassification(config), toy.tokenizer(), TASKS[0])
    with pytest.raises(HeadwiseError, match="has its own head"):
        TrainingRun(plain, TASKS[:1], Houlsby(), toy.settings())


def test_distillation_makes_the_student_like_its_teacher() -> None:
    teacher = ran(Method(), epochs=6, dropout=0.0).model
    student = toy.model(TASKS, layers=1, dropout=0.0, seed=5)
    student.encoder = shallow(teacher.encoder, 1)
    layers = TrainingRun(
        student, TASKS, Distil(teacher=teacher, intermediate=1.0), toy.settings(epochs=6, learning_rate=3e-3)
    )
    layers.train()
    assert layers.losses[-4:].mean() < 0.5 * layers.losses[:4].mean()
    batch = first_batch(student, TASKS[1])

    def gap(model):
        with torch.no_grad():
            return float((model("warmth", batch).logits - teacher("warmth", batch).logits).abs().mean())

    before = gap(student)
    TrainingRun(
        student, TASKS, Distil(teacher=teacher, intermediate=0.0), toy.settings(epochs=6, learning_rate=3e-3)
    ).train()
    assert gap(student) < before
    assert student.encoder.config._attn_implementation != "eager"  # the maps are no longer needed


@pytest.mark.parametrize("family", sorted(toy.FAMILIES))
def test_a_student_equal_to_its_teacher_has_no_loss_with_dropout_on(family) -> None:
    from headwise.training.methods.distil import Distiller

    teacher, student = toy.model(TASKS, family, dropout=0.3), toy.model(TASKS, family, dropout=0.3)
    toy.assert_identical(toy.weights(student), toy.weights(teacher))
    distiller = Distiller(student, teacher).train()
    batch = first_batch(student, TASKS[0])
    assert torch.equal(distiller("mood", batch).loss, torch.zeros(8))
    assert all(part.training for part in student.modules())  # the mode comes back
    with torch.no_grad():
        next(student.encoder.parameters()).add_(0.1)
    loss = distiller("mood", batch).loss
    assert (loss > 0).all()
    loss.sum().backward()  # the comparison has gradients though nothing is dropped
    assert any(
        param.grad is not None and param.grad.abs().sum() > 0 for param in student.encoder.parameters()
    )
    distiller.imitate_predictions()
    one, other = (distiller("mood", batch).logits for _ in range(2))
    assert not torch.equal(one, other)  # dropout is on again


def test_distillation_of_another_width_and_what_it_refuses() -> None:
    teacher = toy.model(TASKS)
    size = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 32,
        "vocab_size": 25,
    }
    narrow = MultiTaskModel(BertModel(BertConfig(**size)), toy.tokenizer(), TASKS)
    run = TrainingRun(narrow, TASKS, Distil(teacher=teacher), toy.settings(epochs=1))
    run.train()
    assert np.isfinite(run.losses).all()
    with pytest.raises(HeadwiseError, match="not a multiple"):
        TrainingRun(toy.model(TASKS, layers=3), TASKS, Distil(teacher=teacher), toy.settings())
    with pytest.raises(HeadwiseError, match="teacher="):
        Distil()
    with pytest.raises(HeadwiseError, match="not trained on 'animal'"):
        TrainingRun(
            toy.model([toy.task("animal")]), [toy.task("animal")], Distil(teacher=teacher), toy.settings()
        )


def test_a_plain_teacher_is_fine_tuned_first_and_kept_for_a_resumed_training(tmp_path) -> None:
    for part in (toy.encoder(), toy.tokenizer()):
        part.save_pretrained(tmp_path / "plain")
    settings = toy.settings(epochs=1)
    quick = {"epochs": 1, "batch_size": 16, "learning_rate": 1e-3, "quiet": True, "device": "cpu"}
    tuned = train(str(tmp_path / "plain"), TASKS, "multi-task", **quick).model
    taught = []
    for folder in (None, tmp_path / "run", tmp_path / "run"):  # in memory, anew, and from what was kept
        run = TrainingRun(
            toy.model(TASKS, layers=1, seed=3),
            TASKS,
            Distil(teacher=str(tmp_path / "plain")),
            settings,
            folder=folder,
        )
        teacher = run.method._distiller.teacher
        toy.assert_identical(toy.weights(teacher.encoder), toy.weights(tuned.encoder))
        run.train()
        taught.append(toy.weights(run.model))
        assert not folder or not (folder / "teacher" / "checkpoint").exists()
        if folder:
            shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    for weights in taught[1:]:
        toy.assert_identical(
            weights, taught[0]
        )  # the student's random numbers do not depend on where the teacher comes from


def test_student_and_teacher_must_read_the_same_tokens() -> None:
    teacher = toy.model(TASKS)
    teacher.tokenizer.add_tokens(["zebra"])
    with pytest.raises(HeadwiseError, match="different vocabularies"):
        TrainingRun(toy.model(TASKS), TASKS, Distil(teacher=teacher), toy.settings())


def test_shallow_takes_every_kth_layer() -> None:
    deep = toy.encoder(layers=4)
    student = shallow(deep, 2)
    for i, j in ((0, 1), (1, 3)):
        one, other = student.encoder.layer[i], deep.encoder.layer[j]
        toy.assert_identical(toy.weights(one), toy.weights(other))
    assert torch.equal(student.embeddings.word_embeddings.weight, deep.embeddings.word_embeddings.weight)
    with pytest.raises(HeadwiseError, match="it must be one of"):
        shallow(deep, 3)


def test_single_task_training_gives_each_task_its_own_model(tmp_path) -> None:
    options = {
        "tokenizer": toy.tokenizer(),
        "epochs": 1,
        "batch_size": 16,
        "learning_rate": 1e-3,
        "quiet": True,
    }
    result = train(toy.encoder(), TASKS, "single-task", out=tmp_path, **options)
    models = headwise.load(tmp_path)
    assert list(models) == ["mood", "warmth"]
    alone = train(toy.encoder(), TASKS[1], "multi-task", **options)
    toy.assert_identical(toy.weights(models["warmth"]), toy.weights(alone.model))
    assert set(result.scores["task"]) == {"mood", "warmth"}


def test_the_one_list_of_methods_is_what_docs_and_command_line_show() -> None:
    import re
    from pathlib import Path

    from typer.testing import CliRunner

    from headwise.cli import app

    assert {name: cls.name for name, cls in METHODS.items()} == {name: name for name in METHODS}
    text = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    table = text.split("## Methods")[1].split("\n\n")[1]
    assert re.findall(r"^\| \[?`([^`]+)`", table, re.MULTILINE) == list(METHODS)
    shown = re.sub(r"\W+", " ", CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200"}).output)
    assert re.sub(r"\W+", " ", " ".join(METHODS)) in shown


def test_methods_by_name() -> None:
    assert make_method("iat", alpha=0.1).describe() == {
        "method": "iat",
        "alpha": 0.1,
        "delta": 0.1,
        "output_projection": True,
        "examples": 10_000,
        "variant": "eq4",
        "drift": False,
        "eval_mode": False,
        "leak": False,
    }
    with pytest.raises(HeadwiseError, match="did you mean 'prune'"):
        make_method("prun")
    with pytest.raises(HeadwiseError, match="no option 'alfa'"):
        make_method("iat", alfa=0.1)
    with pytest.raises(
        HeadwiseError, match=r"alpha: given 30; must be .* a fraction is between 0 and 1 \(30 % is 0.3\)"
    ):
        make_method("iat", alpha=30)
    assert Heads(toy.encoder()).total == 8
