"""`python -m tbservice` is the command `tbservice`."""

import sys

from tbservice.cli import main

sys.exit(main())
