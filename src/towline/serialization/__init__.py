"""Values and errors as JSON: by declared type, checked both ways, nothing that runs (SER-11)."""

from towline.serialization.codec import VALUE_LIMIT_BYTES, Codec, check_type, codec_for
from towline.serialization.errors_record import ErrorRecord
from towline.serialization.plain import check_value
from towline.serialization.wire import decode_record

__all__ = ["VALUE_LIMIT_BYTES", "Codec", "ErrorRecord", "check_type", "check_value", "codec_for", "decode_record"]
