"""Spark sessions in this process or on a Connect server, and how they start."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.spark.driver.engines.connect_server import connect_token as connect_token
    from milepost.spark.driver.engines.connect_server import require_free_port as require_free_port
    from milepost.spark.driver.engines.connect_server import serve_connect as serve_connect
    from milepost.spark.driver.engines.java import find_java as find_java
else:
    __getattr__, __dir__ = lazy_exports(__name__)
