from __future__ import annotations

import os

# Small matrices on a busy machine: the threads of the linear algebra would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
