"""Import everything that jobs need, once, in the fork server.

All jobs of a run thus use the code from the start of the run, even if files are edited meanwhile. These imports must not start a
thread, create a tensor or touch a device.
"""

import contextlib
import gc
import importlib
import pkgutil
import warnings

import psutil
import torch
import torch._dynamo
import torch._subclasses.fake_tensor
import torch.nn.attention
import torch.utils.flop_counter

import bench.flop_counter
import bench.measure.environment
import bench.measure.kernels
import bench.measure.memory_tracker
import bench.measure.step
import bench.measure.timer
import bench.peers.python
import bench.peers.timm
import bench.peers.torchvision
import bench.running.worker
import bench.training.loop
from bench import catalog

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the program itself warns of plugins that are left out
    for kind in ("engines", "families", "mixers", "metrics", "tasks"):
        for name in catalog.names(kind):
            with contextlib.suppress(Exception):  # a file that fails to import fails only the jobs that need it, with a reason
                plugin = catalog.load(kind, name)
                for inner in pkgutil.iter_modules(getattr(plugin, "__path__", ()), f"{plugin.__name__}."):
                    importlib.import_module(inner.name)

gc.collect()
gc.freeze()  # else the first collection in each process writes to all these objects, and so copies their pages
