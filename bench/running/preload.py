"""What the fork server imports once for all jobs: every job of a run is done by the code that the run began with, whatever is edited meanwhile.

Importing must start no thread, make no tensor and ask no device.
"""

import contextlib

import torch
import torch._dynamo
import torch._subclasses.fake_tensor
import torch.nn.attention
import torch.utils.flop_counter

import bench.flop_counter
import bench.measure.environment
import bench.measure.kernels
import bench.measure.memory_tracker
import bench.measure.onednn.direct
import bench.measure.onednn.pieces
import bench.measure.onednn.rewrite
import bench.measure.step
import bench.measure.timer
import bench.peers.families.python
import bench.peers.families.timm
import bench.peers.families.torchvision
import bench.running.worker
import bench.training.baselines
import bench.training.loop
from bench import catalog

for kind in ("engines", "families", "mixers", "metrics", "tasks"):
    for name in catalog.names(kind):
        with contextlib.suppress(Exception):  # a file that cannot be imported fails the jobs that need it, with its reason
            catalog.load(kind, name)
