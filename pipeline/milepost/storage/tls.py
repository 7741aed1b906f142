"""What OpenSSL says where no connection is made; all else may also break one amid an answer."""

from __future__ import annotations

_NO_CONNECTION = ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER", "HANDSHAKE_FAILURE", "UNSUPPORTED_PROTOCOL")


def is_not_connected(error: Exception) -> bool:
    """Return whether nothing was sent, by the text of an error of TLS, of whichever library."""
    return any(word in str(error) for word in _NO_CONNECTION)
