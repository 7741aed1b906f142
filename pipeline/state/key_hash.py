"""The secret that a job's key hash is keyed with."""

from __future__ import annotations

import secrets


def new_secret() -> str:
    """128 random bits, as the manifest keeps them."""
    return secrets.token_hex(16)
