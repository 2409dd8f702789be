"""What the fork server imports once for all jobs. Importing must start no thread, make no tensor and ask no device."""

import torch
import torch._dynamo
import torch._subclasses.fake_tensor
import torch.nn.attention
import torch.utils.flop_counter

import bench.counters
import bench.effective
import bench.environment
import bench.live_memory
import bench.step
import bench.stopwatch
import bench.worker
