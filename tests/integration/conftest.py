"""The servers that integration tests may ask for; each is started at its first use."""

from tests.harness.s3_servers import ministack, seaweed

__all__ = ["ministack", "seaweed"]
