"""What the fork server imports once for all jobs. Importing must start no thread, make no tensor and ask no device."""

import torch  # noqa: F401
import torch._dynamo
import torch._subclasses.fake_tensor
import torch.nn.attention
import torch.utils.flop_counter  # noqa: F401

import bench.step
import bench.stopwatch
import bench.worker  # noqa: F401
