"""Who may connect: tokens, TLS contexts, and where a listener may listen. Redis is imported by its file, where it is used."""

from towline.access.addresses import check_listener, format_address, is_loopback, parse_address
from towline.access.certificates import client_context, server_context
from towline.access.tokens import checked_token, new_token, proof, read_token, same_secret, system_random

__all__ = [
    "check_listener",
    "checked_token",
    "client_context",
    "format_address",
    "is_loopback",
    "new_token",
    "parse_address",
    "proof",
    "read_token",
    "same_secret",
    "server_context",
    "system_random",
]
