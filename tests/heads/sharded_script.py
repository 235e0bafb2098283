"""Run by torchrun in two processes: blocks of a model whose weights are sharded (FSDP2), and what
training_only says to them."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from small_models import build
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet

IDS = torch.randint(5, 50, (4, 6), generator=torch.Generator().manual_seed(0))
CHOSEN = HeadSet([(0, 1), (1, 2), (0, 0)])


def passes(heads: Heads) -> list[torch.Tensor]:
    """What a pass gives in blocks of each kind."""
    with torch.no_grad():
        with heads.silenced(CHOSEN), heads.recorded("last", attention="last") as tape:
            silenced = heads.model(IDS).logits
        with (
            heads.patched(CHOSEN, {"input_ids": IDS.flip(0)}),
            heads.steered({(1, 0): torch.ones(8)}, tokens="last"),
        ):
            patched = heads.model(IDS).logits
    return [silenced, patched, tape.outputs, tape.attention[1]]


def main(folder: Path) -> None:
    """Compares sharded with plain, with Heads built before and after sharding."""
    dist.init_process_group("gloo")
    mesh, expected, record = init_device_mesh("cpu", (2,)), passes(Heads(build("llama"))), {}
    for order in ("before", "after"):
        model: Any = build("llama")
        heads = Heads(model) if order == "before" else None
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        heads = heads or Heads(model)
        apart = [float((a - b).abs().max()) for a, b in zip(passes(heads), expected, strict=True)]
        try:
            with heads.training_only(CHOSEN, torch.optim.AdamW(model.parameters())):
                message = ""
        except HeadwiseError as error:
            message = str(error)
        record[order] = {"apart": apart, "said": message}
    if dist.get_rank() == 0:
        (folder / "sharded.json").write_text(json.dumps(record))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
