"""Entry point of `python -m tbupload`."""

import sys

from tbupload.cli import main

sys.exit(main())
