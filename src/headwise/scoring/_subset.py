"""`subset`: learn which k heads to keep, exactly k of them (Li, Cotterell and Sachan 2021)."""

from typing import Any

import torch
import xarray as xr
from torch import Tensor

from headwise._passes.subject import prepare
from headwise.errors import HeadwiseError
from headwise.scoring._gate_fit import fit_gates, generator
from headwise.scoring._result import as_scores
from headwise.scoring._selection import count_for, top_heads
from headwise.scoring._settings import Reading
from headwise.settings import operation, option
from headwise.tasks import Task

HOT, COLD = 1000.0, 1e-8  # the temperature falls from one to the other, evenly on a log scale


class Subset(Reading):
    """Settings of `subset`."""

    fraction: float = option(0.3, "Fraction of the heads to keep.", ge=0, le=1)
    k: int | None = option(None, "Number of heads to keep, instead of a fraction.")
    steps: int = option(300, "Batches of training.", ge=1)
    lr: float = option(0.1, "Learning rate of Adam.", gt=0)
    straight_through: bool = option(
        False, "Gates are exactly 0 or 1 in the forward pass, and soft in the backward pass."
    )


@operation(Subset)
def subset(model: Any, task: Task, settings: Subset) -> xr.DataArray:
    """Learnt scores whose Gumbel-perturbed, softened top k are the gates of the frozen model.

    Returns:
        (layer, head): learnt scores; `top_heads(scores, n=k)` is the subset. A coordinate `kept` is 1 for its
        members.
    """
    steps, lr, straight_through = settings.steps, settings.lr, settings.straight_through
    subject = prepare(model, task, settings)
    total = int(subject.scored.sum())
    k = count_for(settings.fraction, total) if settings.k is None else settings.k
    if not 1 <= k <= total:
        raise HeadwiseError(f"{k} heads cannot be kept of {total}; choose between 1 and {total}")
    chance = generator(subject)
    learnt = torch.zeros(total, device=subject.device, requires_grad=True)  # (heads,)

    def gates_of(step: int, examples: int) -> Tensor:
        temperature = HOT * (COLD / HOT) ** (step / max(1, steps - 1))
        uniform = torch.rand(total, generator=chance).clamp(1e-6, 1 - 1e-6).to(subject.device)
        soft = soft_top_k(learnt - (-uniform.log()).log(), k, temperature)  # (heads,)
        if straight_through:
            hard = torch.zeros_like(soft).index_fill_(0, soft.topk(k).indices, 1.0)
            soft = hard + soft - soft.detach()
        return torch.zeros_like(subject.base).masked_scatter(subject.scored, soft)  # (layers, heads)

    no_penalty = torch.zeros((), device=subject.device)
    fit_gates(
        subject,
        [learnt],
        gates_of,
        lambda step: no_penalty,
        steps=steps,
        lr=lr,
        description=f"subset, {task.name}",
    )
    values = torch.zeros_like(subject.base).masked_scatter(subject.scored, learnt.detach())
    used = {"k": k, "steps": steps, "lr": lr, "straight_through": straight_through}
    scores = as_scores(values, subject, "subset", "magnitude", **used)
    members = top_heads(scores, n=k).to_mask(subject.heads.shape).astype(float)
    return scores.assign_coords(kept=(("layer", "head"), members))


def soft_top_k(perturbed: Tensor, k: int, temperature: float) -> Tensor:
    """The sum of k softmaxes, each with what the earlier ones took struck out (Xie and Ermon 2019): (heads,),
    summing to k.

    As the temperature falls to 0 it becomes the k-hot vector of the k largest entries.
    """
    keys = perturbed
    picked = torch.zeros_like(perturbed)
    for _ in range(k):
        share = torch.softmax(keys / temperature, dim=0)
        picked = picked + share
        struck = torch.log1p(-share.clamp(max=1 - 1e-6))
        # an entry that was taken whole is out for good, however far its score lies above the others
        keys = keys + torch.where(share > 1 - 1e-6, struck - 1e4, struck)
    return picked
