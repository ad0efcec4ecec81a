"""`tbservice serve` that ends at once when anything imports TensorFlow, installed or not."""

from __future__ import annotations

import os
import sys
import traceback

EXIT_CODE = 70


class Trap:
    """Sees every import before the module is looked up."""

    def find_spec(self, name, _path=None, _target=None):
        """End the process for TensorFlow, past any `except ImportError`; leave all others to
        Python.
        """
        if name.partition(".")[0] == "tensorflow":
            traceback.print_stack()
            sys.stderr.flush()
            os._exit(EXIT_CODE)


if __name__ == "__main__":
    sys.meta_path.insert(0, Trap())
    from tbservice.cli import main

    sys.exit(main(["serve"]))
