"""Recognize TLS errors that prevent a connection. Other TLS errors may also break one in the middle of a reply."""

from __future__ import annotations

_NO_CONNECTION = ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER", "HANDSHAKE_FAILURE", "UNSUPPORTED_PROTOCOL")


def failed_before_connecting(error: Exception) -> bool:
    """Return whether a TLS error, of any library, says that nothing was sent. Its text decides."""
    return any(word in str(error) for word in _NO_CONNECTION)
