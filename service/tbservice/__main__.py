"""Run the command `tbservice` as `python -m tbservice`."""

import sys

from tbservice.cli import main

sys.exit(main())
