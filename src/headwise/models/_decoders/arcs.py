"""Dependency trees from arc scores, batched: Eisner's projective trees and non-projective maximum spanning
trees.

`scores[b, d, h]` is the score of h as head of d, in (batch, nodes, nodes); node 0 is the root, the words are
1 ... n, and nodes = longest sentence + 1. Every tree has exactly one word whose head is the root. Results are
heads in (batch, nodes), 0 for the root itself and beyond a sentence.
"""

import torch
from torch import Tensor


def projective_tree(scores: Tensor, lengths: Tensor) -> Tensor:
    """The best projective tree (Eisner 1996) with one word under the root.

    The chart covers words only; the root's one word is chosen last, which is what makes it single.

    Args:
        scores: (batch, nodes, nodes), [b, dependent, head].
        lengths: (batch,) words of each sentence, at least 1.

    Returns:
        (batch, nodes) heads.
    """
    batch, nodes, _ = scores.shape
    n, device = nodes - 1, scores.device
    rows = torch.arange(batch, device=device)
    arcs = scores[:, 1:, 1:]  # words only
    # Cells [b, i, w] of spans of words i ... i+w (by start) or ending at i (by end). A complete right cell is
    # headed by its first
    # word, a complete left cell by its last; an incomplete cell carries the arc between its two ends.
    shape = (batch, n, n)
    right_start, right_end, left_start, left_end = (
        torch.zeros(shape, dtype=scores.dtype, device=device) for _ in range(4)
    )
    half_right_start, half_left_end = (
        torch.zeros(shape, dtype=scores.dtype, device=device) for _ in range(2)
    )
    half_split, right_split, left_split = (
        torch.zeros(shape, dtype=torch.long, device=device) for _ in range(3)
    )
    for w in range(1, n):
        m = n - w
        # i ... i+a headed by i, and i+a+1 ... i+w headed by i+w: the same best split serves both directions
        # of the arc.
        pieces = right_start[:, :m, :w] + left_end[:, w:, :w].flip(-1)  # (batch, starts, split)
        inner, half_split[:, :m, w] = pieces.max(-1)
        half_right = inner + arcs.diagonal(-w, 1, 2)  # i heads i+w
        half_left = inner + arcs.diagonal(w, 1, 2)  # i+w heads i
        half_right_start[:, :m, w], half_left_end[:, w:, w] = half_right, half_left
        # Complete right: the half cell i ... i+a (a = 1 ... w), then what i+a heads up to i+w.
        full_right, where_right = (half_right_start[:, :m, 1 : w + 1] + right_end[:, w:, :w].flip(-1)).max(-1)
        # Complete left: what i+a heads back to i (a = 0 ... w-1), then the half cell i+a ... i+w.
        full_left, where_left = (left_start[:, :m, :w] + half_left_end[:, w:, 1 : w + 1].flip(-1)).max(-1)
        right_split[:, :m, w], left_split[:, :m, w] = where_right + 1, where_left
        right_start[:, :m, w], right_end[:, w:, w] = full_right, full_right
        left_start[:, :m, w], left_end[:, w:, w] = full_left, full_left

    # The root's word r heads 0 ... r to its left and r ... n-1 to its right.
    word = torch.arange(n, device=device)
    last = lengths[:, None] - 1
    to_right = (last - word).clamp(min=0)  # (batch, words)
    total = left_start[:, 0, :] + right_start[rows[:, None], word, to_right] + scores[:, 1:, 0]
    root = total.masked_fill(word > last, -torch.inf).argmax(-1)  # (batch,)

    heads = torch.zeros(batch, nodes, dtype=torch.long, device=device)
    full_right_on, full_left_on, half_right_on, half_left_on = (
        torch.zeros(shape, dtype=torch.bool, device=device) for _ in range(4)
    )
    full_left_on[rows, 0, root] = True
    full_right_on[rows, root, lengths - 1 - root] = True
    for w in range(n - 1, 0, -1):
        b, i = full_right_on[:, :, w].nonzero(as_tuple=True)
        a = right_split[b, i, w]
        half_right_on[b, i, a] = True
        full_right_on[b, i + a, w - a] = True
        b, i = full_left_on[:, :, w].nonzero(as_tuple=True)
        a = left_split[b, i, w]
        full_left_on[b, i, a] = True
        half_left_on[b, i + a, w - a] = True
        b, i = half_right_on[:, :, w].nonzero(as_tuple=True)
        heads[b, i + w + 1] = i + 1
        _open_half(full_right_on, full_left_on, half_split, b, i, w)
        b, i = half_left_on[:, :, w].nonzero(as_tuple=True)
        heads[b, i + 1] = i + w + 1
        _open_half(full_right_on, full_left_on, half_split, b, i, w)
    return heads


def _open_half(
    full_right_on: Tensor, full_left_on: Tensor, split: Tensor, b: Tensor, i: Tensor, w: int
) -> None:
    """Marks the two complete cells inside the half cells that start at i with width w."""
    a = split[b, i, w]
    full_right_on[b, i, a] = True
    full_left_on[b, i + a + 1, w - a - 1] = True


def spanning_tree(scores: Tensor, lengths: Tensor) -> Tensor:
    """The best tree of any shape (Chu-Liu-Edmonds) with one word under the root.

    Every arc from the root pays more than any tree can gain, so the best tree has as few of them as possible:
    one. Sums are taken in float64, which keeps the order of trees under that penalty. Sentences whose best
    heads already form a tree (nearly all, with a trained parser) are done at once; in the others one cycle is
    contracted per round, all sentences together.

    Args:
        scores: (batch, nodes, nodes), [b, dependent, head].
        lengths: (batch,) words of each sentence, at least 1.

    Returns:
        (batch, nodes) heads.
    """
    nodes = scores.shape[1]
    node = torch.arange(nodes, device=scores.device)
    real = node <= lengths[:, None]  # (batch, nodes)
    work = scores.double().masked_fill(~(real[:, None, :] & real[:, :, None]), 0)
    spread = work.flatten(1).amax(1) - work.flatten(1).amin(1)
    work[:, :, 0] -= ((spread + 1) * (lengths + 1))[:, None]
    work = work.masked_fill(
        ~real[:, None, :] | torch.eye(nodes, dtype=torch.bool, device=scores.device), -torch.inf
    )
    return _contract(work, real & (node > 0)).masked_fill(~real, 0)


def _contract(scores: Tensor, active: Tensor) -> Tensor:
    """Heads of the best arborescence over the active nodes; scores [b, d, h], -inf where h cannot head d."""
    heads = scores.argmax(-1).masked_fill(~active, 0)  # (batch, nodes)
    cycle = _one_cycle(heads, active)  # (batch, nodes)
    todo = cycle.any(-1).nonzero().squeeze(-1)
    if len(todo) == 0:
        return heads
    s, h, c = scores[todo], heads[todo], cycle[todo]
    rows = torch.arange(len(todo), device=s.device)
    lead = c.int().argmax(-1)  # the node that stands for the cycle
    arc = s.gather(2, h[..., None]).squeeze(-1)  # score of each node's chosen arc
    # Into the cycle: breaking it at c costs c's own arc. Out of it: the best member.
    into, enter = (s - arc[..., None]).masked_fill(~c[..., None], -torch.inf).max(1)  # (todo, heads)
    out, leave = s.masked_fill(~c[:, None, :], -torch.inf).max(2)  # (todo, dependents)
    s = s.masked_fill(c[:, None, :] | c[..., None], -torch.inf)
    outside = ~c
    s[rows, lead] = into.masked_fill(~outside, -torch.inf)
    s[rows, :, lead] = out.masked_fill(~outside, -torch.inf)
    member = c.clone()
    member[rows, lead] = False
    above = _contract(s, active[todo] & ~member)  # (todo, nodes), over the contracted graph
    solved = torch.where(c, h, torch.where(above == lead[:, None], leave, above))
    source = above[rows, lead]
    solved[rows, enter[rows, source]] = source
    heads[todo] = solved
    return heads


def _one_cycle(heads: Tensor, active: Tensor) -> Tensor:
    """The members of one cycle of each row's head graph, if it has any; (batch, nodes) bool."""
    batch, nodes = heads.shape
    far = heads
    # after 2^k >= nodes steps up, every node is at the root or on a cycle
    for _ in range(nodes.bit_length()):
        far = far.gather(1, far)
    on = torch.zeros(batch, nodes, dtype=torch.bool, device=heads.device)
    stuck = (far != 0) & active
    # (batch, 1), a node of the cycle; 0 where there is none
    first = far.gather(1, stuck.int().argmax(-1, keepdim=True))
    step = first
    while not bool(on.gather(1, step).all()):
        on.scatter_(1, step, True)
        step = heads.gather(1, step)
    on[:, 0] = False
    return on
