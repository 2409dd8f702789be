"""Importing makes this process, and what it forks, ignore the signals that ask a run to stop: the run's own process decides what they mean.

For the fork server alone. A terminal that goes away, and a batch system that ends a job, send them to every process of the run; a worker that died of
one would be recorded as killed.
"""

import signal

from bench.running.signals import SIGNALS

for number in SIGNALS:
    signal.signal(number, signal.SIG_IGN)
