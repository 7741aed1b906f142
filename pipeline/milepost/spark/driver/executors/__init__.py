"""Check before an epoch that the executors can run it."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.spark.driver.executors.probe import check_server as check_server
    from milepost.spark.driver.executors.probe import libraries_of as libraries_of
else:
    __getattr__, __dir__ = lazy_exports(__name__)
