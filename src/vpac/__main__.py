"""`python -m vpac`."""

import sys

from vpac.cli import main

sys.exit(main())
