"""Resolve endpoint and credentials like the AWS library, for libraries with their own S3 clients."""

from __future__ import annotations

from dataclasses import dataclass

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from milepost.protocol.records.object_store import Credentials, StoreConfig
from milepost.storage.keys import s3_root
from milepost.storage.s3.errors import S3Errors
from milepost.storage.s3.store import aws_session


@dataclass(frozen=True, slots=True)
class S3Access:
    """An endpoint, and credentials as they are now: those of a role or of SSO end some time.

    Attributes:
        endpoint_url: that of the configuration, or what the AWS library finds for its region.
    """

    endpoint_url: str
    credentials: Credentials


def s3_access(config: StoreConfig) -> S3Access:
    """Return how a store is reached, so that another library reaches the same: by no search of its own.

    Raises:
        InvalidRequest: the store is not in S3.
        EnvironmentUnusable: there are no credentials, or a profile or endpoint that cannot be.
    """
    root = s3_root(config.url)
    try:
        session = aws_session(config.credentials)
        endpoint_url = config.endpoint_url or session.client("s3", region_name=config.region).meta.endpoint_url
        found = session.get_credentials()
        if found is None:
            raise NoCredentialsError
        frozen = found.get_frozen_credentials()
    except (BotoCoreError, ClientError, ValueError) as error:
        raise S3Errors(config, root.bucket).of_client(error) from error
    return S3Access(endpoint_url, Credentials(frozen.access_key, frozen.secret_key, frozen.token))
