"""Delta locations tell the library how to reach a table: as our own store does, whatever the environment says."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from milepost.errors import EnvironmentUnusable, InvalidRequest
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.keys import LocalRoot, is_loopback, parse_root

_UNSAFE = ("AWS_S3_ALLOW_UNSAFE_RENAME", "MOUNT_ALLOW_UNSAFE_RENAME", "AWS_S3_LOCKING_PROVIDER")
"""What makes writers of Delta tables commit without asking whether somebody else did, or ask elsewhere than ours do."""

_PLAIN = "/!$&'()*+,;=:@~"
"""What stands for itself in the path of a URL, beside letters and digits."""

_MISTAKEN = re.compile(r"%[0-9A-Fa-f]{2}|[\\\[\]|^]")
"""What the library decodes twice, or takes for a part of a host's name."""


@dataclass(frozen=True, slots=True)
class DeltaLocation:
    """What the library is given.

    Attributes:
        uri: a `file://` or `s3://` URL. options: of its store, with credentials.
    """

    uri: str
    options: dict[str, str] = field(repr=False)

    def without_secrets(self, text: str) -> str:
        """Return a text, such as a server's answer, without what is secret here."""
        for name in ("aws_secret_access_key", "aws_session_token", "aws_access_key_id"):
            if secret := self.options.get(name):
                text = text.replace(secret, "***")
        return text


def delta_location(sink: str, config: StoreConfig) -> DeltaLocation:
    """Return where a store's root is for the library, with credentials as they are now.

    Raises:
        InvalidRequest: a path that the library would take for another.
        EnvironmentUnusable: the environment asks for unsafe commits, or there are no credentials.
    """
    for name in (*_UNSAFE, *(unsafe.lower() for unsafe in _UNSAFE)):
        if name in os.environ:
            raise EnvironmentUnusable(
                f"sink {sink}: {name} is set: a commit to a Delta table could then overwrite somebody else's. "
                "Nothing was published.",
                hint=f"unset {name}; a store that cannot commit without it cannot hold Delta tables",
                sink=sink,
            )
    root = parse_root(config.url)
    path = str(root.path) if isinstance(root, LocalRoot) else root.prefix
    if (odd := _MISTAKEN.search(path)) is not None:
        raise InvalidRequest(
            f"sink {sink}: its path {path!r} has {odd[0]!r} in it, which the library of Delta takes for something "
            "else. Nothing was published.",
            hint="give the sink a path of letters, digits and -_./",
            sink=sink,
        )
    if isinstance(root, LocalRoot):
        return DeltaLocation(f"file://{quote(path, safe=_PLAIN)}", {})
    return DeltaLocation(f"s3://{root.bucket}/{quote(path, safe=_PLAIN)}", _s3_options(config))


def _s3_options(config: StoreConfig) -> dict[str, str]:
    """Return every option that the library would otherwise take from the environment.

    As it is told an endpoint, it makes no search for credentials of its own, which would ask the machine's cloud.
    """
    from milepost.storage.s3.access import s3_access  # boto3 is only loaded by jobs that use it

    access = s3_access(config)
    options = {
        "aws_access_key_id": access.credentials.access_key,
        "aws_secret_access_key": access.credentials.secret_key,
        "aws_session_token": access.credentials.session_token or "",
        "aws_region": config.region,
        "aws_endpoint_url": access.endpoint_url,
        "aws_endpoint_url_s3": access.endpoint_url,
        "aws_allow_http": str(access.endpoint_url.startswith("http:")).lower(),
        "aws_virtual_hosted_style_request": "false",
        "aws_skip_signature": "false",
        "aws_conditional_put": "etag",
    }
    if is_loopback(access.endpoint_url):
        # HTTP_PROXY of the environment cannot lead to this machine's loopback, and can only be told by naming another.
        options |= {"proxy_url": access.endpoint_url, "proxy_excludes": urlsplit(access.endpoint_url).hostname or ""}
    return options
