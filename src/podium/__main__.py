"""`python -m podium` is `podium`."""

import sys

from podium.cli import main

sys.exit(main())
