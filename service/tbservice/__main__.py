"""Run the command `tbservice` as `python -m tbservice`."""

import gc
import sys

gc.disable()  # as in `main`

from tbservice.cli import main  # noqa: E402 - without garbage collection

sys.exit(main())
