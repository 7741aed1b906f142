"""Frozen credentials are what our own chain gives at one moment, for libraries that sign requests by themselves."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, NoCredentialsError

from milepost.protocol.records.object_store import Credentials, StoreConfig
from milepost.storage.keys import LocalRoot, parse_root
from milepost.storage.s3 import aws_session
from milepost.storage.s3_errors import S3Errors


def frozen_credentials(config: StoreConfig) -> Credentials:
    """Return the keys that a store is reached with now: a Connection's, or those of the standard AWS chain.

    Raises: EnvironmentUnusable: the chain has none, or cannot renew them.
    """
    root = parse_root(config.url)
    errors = S3Errors(config, root.path.name if isinstance(root, LocalRoot) else root.bucket)
    try:
        credentials = aws_session(config.credentials).get_credentials()
        if credentials is None:
            raise NoCredentialsError
        frozen = credentials.get_frozen_credentials()
    except BotoCoreError as error:
        raise errors.of_client(error) from error
    return Credentials(frozen.access_key, frozen.secret_key, frozen.token)
