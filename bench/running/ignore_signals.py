"""Ignore stop signals in this process and its forks, on import.

Only the fork server imports this. A lost terminal, or a batch system that ends a job, signals every process of the run. Only the run's
main process acts on the signal; a worker that died of it would be recorded as killed.
"""

import signal

from bench.running.signals import SIGNALS

for number in SIGNALS:
    signal.signal(number, signal.SIG_IGN)
