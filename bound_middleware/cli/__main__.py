"""``python -m bound_middleware.cli``: the same as ``bound``."""

from . import main

raise SystemExit(main())
