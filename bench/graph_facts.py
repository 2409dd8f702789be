"""How many graphs torch.compile has cut a model into in this process, and how often it gave up in between."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Graphs:
    num_graphs: int
    num_breaks: int

    def since(self, before: Graphs) -> Graphs:
        return Graphs(num_graphs=self.num_graphs - before.num_graphs, num_breaks=self.num_breaks - before.num_breaks)

    @property
    def text(self) -> str:
        plural = "" if self.num_graphs == 1 else "s"
        return f"{self.num_graphs} graph{plural}, {self.num_breaks} graph breaks"


def graphs_so_far() -> Graphs:
    from torch._dynamo.utils import counters

    return Graphs(num_graphs=counters["stats"]["unique_graphs"], num_breaks=sum(counters["graph_break"].values()))
