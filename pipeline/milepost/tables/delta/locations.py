"""Locations and storage options for the `deltalake` library, never taken from the environment."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from milepost.errors import InvalidRequest
from milepost.protocol.records import StoreConfig
from milepost.storage import LocalRoot, is_loopback, parse_root

_PLAIN = "/!$&'()*+,;=:@~"
"""Characters, besides letters and digits, that are literal in the path of a URL."""

_MISTAKEN = re.compile(r"%[0-9A-Fa-f]{2}|[\\\[\]|^]")
"""Characters that the library decodes twice, or interprets as part of a host name."""


@dataclass(frozen=True, slots=True)
class DeltaLocation:
    """A table's location and storage options.

    Attributes:
        uri: a `file://` or `s3://` URL. options: storage options, including credentials.
    """

    uri: str
    options: dict[str, str] = field(repr=False)

    def without_secrets(self, text: str) -> str:
        """Return a text, such as a server's response, with the credentials masked."""
        for name in ("aws_secret_access_key", "aws_session_token", "aws_access_key_id"):
            if secret := self.options.get(name):
                text = text.replace(secret, "***")
        return text


def readable_location(kind: str, name: str, config: StoreConfig, consequence: str) -> DeltaLocation:
    """Return the location of a store's root, with current credentials, for the library to read.

    Args:
        kind: sink or source. name, consequence: for messages.
    Raises:
        InvalidRequest: the library would misread the path. EnvironmentUnusable: there are no credentials.
    """
    root = parse_root(config.url)
    path = str(root.path) if isinstance(root, LocalRoot) else root.prefix
    if (odd := _MISTAKEN.search(path)) is not None:
        raise InvalidRequest(
            f"{kind} {name}: its path {path!r} contains {odd[0]!r}, which Delta's library misinterprets. {consequence}",
            hint=f"give the {kind} a path of letters, digits and -_./",
            **{kind: name},
        )
    if isinstance(root, LocalRoot):
        return DeltaLocation(f"file://{quote(path, safe=_PLAIN)}", {})
    return DeltaLocation(f"s3://{root.bucket}/{quote(path, safe=_PLAIN)}", _s3_options(config))


def _s3_options(config: StoreConfig) -> dict[str, str]:
    """Return every option that the library would otherwise take from the environment.

    With an endpoint given, the library does not search for credentials itself, which would query the cloud's metadata
    service.
    """
    from milepost.storage.s3 import s3_access

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
        # A proxy from HTTP_PROXY cannot reach this machine's loopback, and only naming another proxy overrides it.
        options |= {"proxy_url": access.endpoint_url, "proxy_excludes": urlsplit(access.endpoint_url).hostname or ""}
    return options
