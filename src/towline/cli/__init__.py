"""The command line: ``towline`` and a pipeline's own ``main()``."""

from towline.cli.main import main

__all__ = ["main"]
