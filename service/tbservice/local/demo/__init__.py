"""The demo: a few small networks, really trained, whose event files hold every kind of data."""

from tbservice.local.demo.logdir import write_demo_logdir

__all__ = ["write_demo_logdir"]
