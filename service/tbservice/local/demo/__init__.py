"""The demo: a small generated log directory with data for every dashboard."""

from tbservice.local.demo.logdir import write_demo_logdir

__all__ = ["write_demo_logdir"]
