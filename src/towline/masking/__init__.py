"""Secrets, and keeping them out of everything that is shown, stored or sent."""

from towline.masking.masker import Masker
from towline.masking.native import native_mask_commands
from towline.masking.secret import MASK, Secret, read_secret
from towline.masking.stream import MaskedStream

__all__ = ["MASK", "MaskedStream", "Masker", "Secret", "native_mask_commands", "read_secret"]
