"""Resolve endpoint and credentials like the AWS library, for libraries with their own S3 clients."""

from __future__ import annotations

from dataclasses import dataclass

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from milepost.protocol.records import Credentials, StoreConfig
from milepost.storage.keys import s3_root
from milepost.storage.s3.errors import S3Errors
from milepost.storage.s3.store import aws_session


@dataclass(frozen=True, slots=True)
class S3Access:
    """An endpoint and a snapshot of its credentials. Credentials of a role or of SSO expire.

    Attributes:
        endpoint_url: the configured one, or the AWS library's default for the region.
    """

    endpoint_url: str
    credentials: Credentials


def s3_access(config: StoreConfig) -> S3Access:
    """Return endpoint and credentials of a store, so that another library need not search for them itself.

    Raises:
        InvalidRequest: the store is not in S3.
        EnvironmentUnusable: there are no credentials, or the profile or endpoint is invalid.
    """
    root = s3_root(config.url)
    try:
        session = aws_session(config.credentials)
        endpoint_url = config.endpoint_url or session.client("s3", region_name=config.region).meta.endpoint_url
        credentials = session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        frozen = credentials.get_frozen_credentials()
    except (BotoCoreError, ClientError, ValueError) as error:
        raise S3Errors(config, root.bucket).of_client(error) from error
    return S3Access(endpoint_url, Credentials(frozen.access_key, frozen.secret_key, frozen.token))
