"""CA-MTL against its definition: each conditional module, where it enters, what is shared and frozen; trained, saved and reloaded."""

import pytest
import torch
import toy
from torch.nn.functional import gelu, layer_norm, softmax
from transformers import BertConfig, BertModel

import headwise
from headwise.errors import HeadwiseError
from headwise.tasks import batches, encode
from headwise.training import TrainingRun
from headwise.training.methods.camtl import CAMTL, KEY
from headwise.training.methods.conditional import ConditionalAttention, Conditions

TASKS = [toy.task("mood", 40), toy.task("warmth", 40)]


def first_batch(model, task=TASKS[0]):
    return next(iter(batches(encode(task.split("validation"), model.tokenizer), 8)))


def enlarged(model):
    """Conditions large enough to see, and nowhere zero."""
    torch.manual_seed(1)
    with torch.no_grad():
        for param in model.adapters.parameters():
            param.add_(0.3 * torch.randn_like(param))
    return model


def trained(variant="base", family="bert", layers=2, **changes):
    settings = toy.settings(epochs=1, max_length=16, **changes)
    run = TrainingRun(toy.model(TASKS, family, layers=layers), TASKS, CAMTL(variant=variant), settings)
    run.train()
    return run


def test_sizes_and_the_count_for_bert_base() -> None:
    with torch.device("meta"):
        base = BertModel(BertConfig())
        made = Conditions(8, 768, 12, 128, 6, large=False)
    d, width = 768, 22  # ⌈128 ÷ 6⌉
    film = 2 * (d * d + d)
    attention = 128 * width + 2 * (d * width + width)
    bottleneck = (d * d + d) + film + (d * 256 + 256) + (256 * d + d)
    whole = 8 * d + (d * d + d) + film + 6 * (attention + 2 * film) + bottleneck + film + 2 * d
    added = sum(param.numel() for param in made.parameters())
    assert added == whole == 19_520_776
    shared = sum(param.numel() for param in base.parameters())
    assert (
        f"{1 + added / shared:.2f}" == "1.18"
    )  # the paper prints 1.12, which its released code, 1.18, does not have either
    nine = Conditions(9, 768, 12, 128, 6, large=False)
    assert sum(param.numel() for param in nine.parameters()) - added == d  # a task more costs one embedding


def test_scores_are_added_inside_blocks_of_the_diagonal_only() -> None:
    torch.manual_seed(0)
    made, z = ConditionalAttention(8, length=10, blocks=3), torch.randn(8)
    assert made.width == 4
    with torch.no_grad():
        made.matrix.normal_()
        scale, shift = made.film.generate(z).chunk(2)
        found = made(z, 9)
        for i in range(9):
            for j in range(9):
                same = i // 4 == j // 4
                expected = (
                    (1 + scale[j % 4]) * made.matrix[i, j % 4] + shift[j % 4] if same else torch.tensor(0.0)
                )
                torch.testing.assert_close(found[i, j], expected)
        torch.testing.assert_close(made(z, 6), found[:6, :6])  # a shorter text sees the same scores


def slow_forward(model, batch, large):
    """CA-MTL written out for BERT, from the weights alone."""
    made, encoder, real = model.adapters[KEY], model.encoder, batch.inputs["attention_mask"].bool()
    raw = made.tasks.weight[0]
    z = made.transform.weight @ raw + made.transform.bias

    def film(module, given, x):
        scale, shift = (module.generate.weight @ given + module.generate.bias).chunk(2)
        return (1 + scale) * x + shift

    def norm(own, plain, x):
        return layer_norm(
            x, (32,), plain.weight if own is None else film(own.film, z, plain.weight), plain.bias, plain.eps
        )

    def bottleneck(own, x):
        inner = film(own.film, own.transform.weight @ z + own.transform.bias, x)
        return (inner @ own.down.weight.T + own.down.bias) @ own.up.weight.T + own.up.bias

    h = film(
        made.align,
        raw,
        encoder.embeddings(**{k: v for k, v in batch.inputs.items() if k != "attention_mask"}),
    )
    path, lower = 0, len(encoder.encoder.layer) // 2
    for number, layer in enumerate(encoder.encoder.layer):
        upper = number - lower
        q, k, v = (
            getattr(layer.attention.self, part)(h).unflatten(-1, (4, 8)).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        scores = q @ k.transpose(-1, -2) / 8**0.5
        if upper >= 0:
            scores = scores + made.attention[upper](z, h.shape[1])
        maps = softmax(scores.masked_fill(~real[:, None, None, :], -1e9), -1)
        own = [None, None] if upper < 0 else made.norms[2 * upper : 2 * upper + 2]
        out = layer.attention.output
        attended = norm(own[0], out.LayerNorm, out.dense((maps @ v).transpose(1, 2).flatten(2)) + h)
        h = norm(
            own[1],
            layer.output.LayerNorm,
            layer.output.dense(gelu(layer.intermediate.dense(attended))) + attended,
        )
        path = bottleneck(made.bottlenecks[number], h + path) if large else path
    return path if large else norm(made.last, made.last_norm, bottleneck(made.bottlenecks[0], h) + attended)


@pytest.mark.parametrize("variant", ["base", "large"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_pass_is_the_one_written_out(variant, attention) -> None:
    model = enlarged(trained(variant).model)
    model.encoder.set_attn_implementation(attention)
    batch = first_batch(model)
    real = batch.inputs["attention_mask"].bool()
    assert not real.all()
    with torch.no_grad(), model.contexts["mood"]():
        found = model.states(batch)
    with torch.no_grad():
        torch.testing.assert_close(
            found[real], slow_forward(model, batch, variant == "large")[real], rtol=1e-4, atol=1e-4
        )
        bare = model.states(batch)
    assert not torch.allclose(found[real], bare[real], atol=1e-2)


def test_generators_of_zeros_leave_the_layers_as_they_are() -> None:
    model = trained().model
    with torch.no_grad():
        for name, param in model.adapters.named_parameters():
            if "generate" in name or "matrix" in name or ".up." in name:
                param.zero_()
        seen = []
        last = model.encoder.encoder.layer[-1].attention
        handle = last.register_forward_hook(lambda module, args, output: seen.append(output[0]))
        batch = first_batch(model)
        bare = model.states(batch)
        with model.contexts["mood"]():
            found = model.states(batch)
        handle.remove()
    torch.testing.assert_close(
        seen[1], seen[0]
    )  # alignment, conditional attention and layer norms: the identity
    norm = model.adapters[KEY].last_norm
    torch.testing.assert_close(found, layer_norm(seen[0], (32,), norm.weight, norm.bias, norm.eps))
    assert not torch.equal(found, bare)  # the bottleneck stands in the last layer's place


@pytest.mark.parametrize(("variant", "layers"), [("base", 3), ("large", 2)])
def test_trained_saved_and_reloaded(variant, layers, tmp_path) -> None:
    run = trained(variant, layers=layers)
    model, fresh = run.model, toy.model(TASKS, layers=layers)
    lower = [f"encoder.layer.{i}." for i in range(layers // 2)]
    for name, param in model.encoder.named_parameters():
        frozen = name.startswith(("embeddings", "pooler", *lower))
        assert torch.equal(param, fresh.encoder.get_parameter(name)) == frozen, name
    enlarged(model).save(tmp_path)
    again, batch = headwise.load(tmp_path), first_batch(model)
    with torch.no_grad():
        torch.testing.assert_close(
            again("mood", batch).logits, model("mood", batch).logits, rtol=0, atol=1e-6
        )
        again.adapters[KEY].tasks.weight[1] += 1  # another task's embedding
        torch.testing.assert_close(
            again("mood", batch).logits, model("mood", batch).logits, rtol=0, atol=1e-6
        )
        again.adapters[KEY].tasks.weight[0] += 1
        assert (again("mood", batch).logits - model("mood", batch).logits).abs().max() > 1e-3
        whole = next(iter(batches(encode(TASKS[0].split("validation"), model.tokenizer), 40)))
        alone = next(iter(batches(encode(TASKS[0].split("validation").subset([3]), model.tokenizer), 1)))
        row = int((whole.index == 3).nonzero())
        torch.testing.assert_close(
            model("mood", whole).logits[row], model("mood", alone).logits[0], rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("variant", ["base", "large"])
def test_every_module_learns_and_checkpointed_activations_change_nothing(variant) -> None:
    runs = [
        TrainingRun(
            toy.model(TASKS, dropout=0.0),
            TASKS,
            CAMTL(variant=variant),
            toy.settings(epochs=1, max_length=16, gradient_checkpointing=on),
        )
        for on in (False, True)
    ]
    model = runs[0].model.train()
    model("mood", first_batch(model)).loss.sum().backward()
    still = [
        name
        for name, param in model.adapters.named_parameters()
        if param.grad is None or not param.grad.abs().sum()
    ]
    assert not still
    for run in runs:
        enlarged(run.model)
        run.train()
    torch.testing.assert_close(*(torch.from_numpy(run.losses) for run in runs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("variant", ["base", "large"])
@pytest.mark.filterwarnings("ignore:lower layers were not shared")
def test_scores_and_lesions_of_a_conditioned_model(variant) -> None:
    from headwise._passes.lesioned import evaluate
    from headwise._passes.subject import task_subject

    model = enlarged(trained(variant, layers=3).model)
    scores = headwise.score(model, TASKS[0], examples=8, quiet=True)
    assert scores.shape == (3, 4)
    assert float(scores.min()) > 0
    sets = [headwise.HeadSet(), headwise.HeadSet([(2, 1)]), headwise.HeadSet([(0, 1), (1, 2)])]
    subject = task_subject(model, TASKS[0], split="validation", max_length=16, quiet=True)
    quick, full = (evaluate(subject, sets, way=way).losses for way in ("auto", "one by one"))
    torch.testing.assert_close(torch.from_numpy(quick), torch.from_numpy(full), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "reason"),
    [("gpt2", "do not end in a layer norm"), ("llama", "two layer norms"), ("deberta-v2", "attention mask")],
)
def test_families_it_does_not_fit_are_refused_with_the_reason(family, reason) -> None:
    with pytest.raises(HeadwiseError, match=f"does not fit .*{reason}"):
        TrainingRun(toy.model(TASKS, family), TASKS, CAMTL(), toy.settings())


def test_scores_reach_as_far_as_rows_are_padded_on_a_gpu() -> None:
    from headwise.training._graphs import PAD

    model = toy.model(TASKS)
    TrainingRun(model, TASKS, CAMTL(), toy.settings(max_length=13))
    padded = next(
        iter(batches(encode(TASKS[0].split("validation"), model.tokenizer, 13), 40, pad_to_multiple=PAD))
    )
    assert padded.inputs["input_ids"].shape[1] == 16
    plain = next(iter(batches(encode(TASKS[0].split("validation"), model.tokenizer, 13), 40)))
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(
            model("mood", padded).logits, model("mood", plain).logits, rtol=1e-4, atol=1e-5
        )


def test_what_it_refuses_besides() -> None:
    model = trained().model
    long = toy.Task("mood", data={"train": [("cat " * 30, "up"), ("dog", "down")]}, text="text")
    with pytest.raises(HeadwiseError, match="at most 16 tokens"):
        model("mood", next(iter(batches(encode(long.split("train"), model.tokenizer), 2))))
    with pytest.raises(HeadwiseError, match="'base' or 'large'"):
        CAMTL(variant="huge")
    with pytest.raises(HeadwiseError, match="greater than or equal to 1"):
        CAMTL(blocks=0)
    left = toy.model(TASKS)
    left.tokenizer.padding_side = "left"
    with pytest.raises(HeadwiseError, match="padded on the left"):
        TrainingRun(left, TASKS, CAMTL(), toy.settings())
