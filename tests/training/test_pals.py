"""PALs against their paper's definition: sizes, what is shared, where they enter a layer; trained, saved and reloaded."""

import math

import pytest
import torch
import toy
from torch.nn.functional import gelu, layer_norm
from transformers import BertConfig, BertModel

import headwise
from headwise.errors import HeadwiseError
from headwise.tasks import batches, encode
from headwise.training import TrainingRun
from headwise.training.methods.pals import PALs, TaskPALs

TASKS = [toy.task("mood", 40), toy.task("warmth", 40)]


def first_batch(model, task=TASKS[0]):
    return next(iter(batches(encode(task.split("validation"), model.tokenizer), 8)))


def trained(family="bert", **changes):
    run = TrainingRun(
        toy.model(TASKS, family), TASKS, PALs(size=12, n_heads=3), toy.settings(epochs=1, **changes)
    )
    run.train()
    with torch.no_grad():
        for param in run.model.adapters.parameters():
            param.mul_(10)  # large enough to see
    return run


def test_as_many_weights_as_published_for_bert_base() -> None:
    with torch.device("meta"):
        base = BertModel(BertConfig())
        own = [TaskPALs(768, 12, 204, 12) for _ in range(8)]
    shared = sum(param.numel() for param in base.parameters())
    added = sum(param.numel() for one in own for param in one.parameters())
    assert added == 8 * (2 * 768 * 204 + 12 * 3 * 204**2) == 14_492_160
    assert f"{1 + added / shared:.2f}" == "1.13"  # the paper's Table 1, and the first paper's Table 5
    assert own[0].encode.weight.shape == (204, 768)
    assert own[0].decode.weight.shape == (768, 204)
    assert all(layer.query.weight.shape == (204, 204) for layer in own[0].layers)


def test_the_default_is_the_papers() -> None:
    assert PALs().describe() == {"method": "pals", "size": 204, "n_heads": 12}
    with pytest.raises(HeadwiseError, match="multiple of n_heads"):
        PALs(size=204, n_heads=10)


def slow_ts(pals, layer, h, real):
    """TS(h) = V^D g(V^E h), one example, query and head after another."""
    down, up, g = pals.encode.weight, pals.decode.weight, pals.layers[layer]
    width = down.shape[0] // g.n_heads
    out = torch.zeros_like(h)
    for b in range(len(h)):
        keys = [t for t in range(h.shape[1]) if real[b, t]]
        small = [down @ h[b, t] for t in range(h.shape[1])]
        for t in range(h.shape[1]):
            parts = []
            for head in range(g.n_heads):
                rows = slice(head * width, (head + 1) * width)
                query = g.query.weight[rows] @ small[t]
                scores = torch.stack(
                    [query @ (g.key.weight[rows] @ small[s]) / math.sqrt(width) for s in keys]
                )
                parts.append(
                    sum(
                        p * (g.value.weight[rows] @ small[s])
                        for p, s in zip(scores.softmax(0), keys, strict=True)
                    )
                )
            out[b, t] = up @ torch.cat(parts)
    return out


def test_a_layer_is_ln_of_input_and_its_own_work_and_ts_of_the_input() -> None:
    run = trained()
    model, batch = run.model, first_batch(run.model)
    real = batch.inputs["attention_mask"].bool()
    assert not real.all()  # padding is part of the test
    encoder, pals = model.encoder, model.adapters["mood"]
    with torch.no_grad():
        inputs = {k: v for k, v in batch.inputs.items() if k != "attention_mask"}
        h = encoder.embeddings(**inputs)
        mask = torch.zeros(real.shape).masked_fill(~real, -1e9)[:, None, None, :]
        for number, layer in enumerate(encoder.encoder.layer):
            attended = layer.attention(h, mask)[0]
            dense, norm = layer.output.dense, layer.output.LayerNorm
            work = gelu(layer.intermediate.dense(attended)) @ dense.weight.T + dense.bias
            h = layer_norm(
                attended + work + slow_ts(pals, number, h, real), (32,), norm.weight, norm.bias, norm.eps
            )
        with model.contexts["mood"]():
            found = model.states(batch)
        plain = model.states(batch)
    torch.testing.assert_close(found[real], h[real], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(plain[real], h[real], atol=1e-2)


@pytest.mark.parametrize("family", ["bert", "deberta-v2", "gpt2", "llama"])
def test_trained_saved_reloaded_and_each_tasks_own(family, tmp_path) -> None:
    run = trained(family)
    model, fresh = run.model, toy.model(TASKS, family)
    assert not torch.equal(
        *(next(m.encoder.parameters()) for m in (model, fresh))
    )  # the encoder is trained too
    model.save(tmp_path)
    again = headwise.load(tmp_path)
    batch = first_batch(model)
    with torch.no_grad():
        torch.testing.assert_close(
            again("mood", batch).logits, model("mood", batch).logits, rtol=0, atol=1e-6
        )
        for param in again.adapters["warmth"].parameters():
            param.add_(1.0)  # another task's weights
        torch.testing.assert_close(
            again("mood", batch).logits, model("mood", batch).logits, rtol=0, atol=1e-6
        )
        again.adapters["mood"].decode.weight.mul_(-1)
        assert (again("mood", batch).logits - model("mood", batch).logits).abs().max() > 1e-3
        alone = next(iter(batches(encode(TASKS[0].split("validation").subset([3]), model.tokenizer), 1)))
        whole = next(iter(batches(encode(TASKS[0].split("validation"), model.tokenizer), 40)))
        row = int((whole.index == 3).nonzero())
        torch.testing.assert_close(
            model("mood", whole).logits[row], model("mood", alone).logits[0], rtol=1e-4, atol=1e-5
        )


def test_left_to_right_models_see_nothing_that_comes_later() -> None:
    model = trained("gpt2").model
    batch = first_batch(model)
    other = {name: value.clone() for name, value in batch.inputs.items()}
    lengths = batch.inputs["attention_mask"].sum(1)
    rows = torch.arange(len(lengths))
    other["input_ids"][rows, lengths - 1] = 7
    with torch.no_grad(), model.contexts["mood"]():
        one, two = (model.encoder(**inputs).last_hidden_state for inputs in (batch.inputs, other))
    for row, length in enumerate(lengths):
        torch.testing.assert_close(one[row, : length - 1], two[row, : length - 1])


def test_every_weight_learns_and_checkpointed_activations_change_nothing() -> None:
    model = toy.model(TASKS, dropout=0.0)
    run = TrainingRun(model, TASKS, PALs(size=12, n_heads=3), toy.settings())
    model.train()
    model("mood", first_batch(model)).loss.sum().backward()
    assert all(
        param.grad is not None and param.grad.abs().sum() > 0 for param in model.adapters["mood"].parameters()
    )
    assert all(param.grad is None for param in model.adapters["warmth"].parameters())
    assert run.optimizer.param_groups[0]["lr"] == run.optimizer.param_groups[-1]["lr"]
    losses = []
    for on in (False, True):
        run = TrainingRun(
            toy.model(TASKS, dropout=0.0),
            TASKS,
            PALs(size=12, n_heads=3),
            toy.settings(gradient_checkpointing=on),
        )
        run.train()
        losses.append(torch.from_numpy(run.losses))
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)


def test_scores_and_lesions_of_a_model_with_pals() -> None:
    from headwise._passes.lesioned import evaluate
    from headwise._passes.subject import task_subject

    model = trained().model
    scores = headwise.score(model, TASKS[0], examples=8, quiet=True)
    assert scores.shape == (2, 4)
    assert float(scores.min()) > 0
    with torch.no_grad():
        for name, param in model.encoder.named_parameters():
            if "value" in name or "attention.output.dense" in name:
                param.mul_(20)  # heads that matter
    lesion = headwise.HeadSet([(1, 2)])
    subject = task_subject(model, TASKS[0], split="validation", quiet=True)
    shared = evaluate(subject, [headwise.HeadSet(), lesion], way="shared")
    full = evaluate(subject, [headwise.HeadSet(), lesion], way="one by one")
    assert shared.ways["shared"] == 1
    torch.testing.assert_close(
        torch.from_numpy(shared.losses), torch.from_numpy(full.losses), rtol=1e-4, atol=1e-5
    )
    assert not torch.allclose(*torch.from_numpy(full.losses), atol=1e-4)


def test_what_pals_refuse() -> None:
    run = trained()
    with pytest.raises(HeadwiseError, match="this model has adapters"):
        TrainingRun(run.model, TASKS, PALs(), toy.settings())


def test_a_new_task_has_no_projected_layers_and_is_refused_with_the_reason() -> None:
    with pytest.raises(HeadwiseError, match="trained by pals cannot be a source of transfer"):
        trained().model.new_encoder()
