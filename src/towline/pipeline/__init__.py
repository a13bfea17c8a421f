"""The composition root: ``Pipeline``."""

from towline.pipeline.pipeline import Pipeline

__all__ = ["Pipeline"]
