"""The `prices` key: what storage and machines cost."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from milepost.language import SpecModel

Price = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=False)]


class PricesSpec(SpecModel):
    """Your providers' prices, from their price lists or your contract. Items without a price are not estimated.

    Attributes:
        currency: currency of all prices: three letters, such as USD.
        put_per_1000: price of 1,000 PUT, COPY, POST and LIST requests.
        get_per_1000: price of 1,000 GET and HEAD requests. Cloud providers do not charge for deletes.
        out_per_gb: price of 10^9 bytes transferred out of the storage. Set it only if Spark runs in another region.
        storage_per_gb_month: price of 10^9 bytes stored for a month.
        core_hour: price of one core of the machines that run Spark's tasks, for an hour.
    """

    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = "USD"
    put_per_1000: Price | None = None
    get_per_1000: Price | None = None
    out_per_gb: Price | None = None
    storage_per_gb_month: Price | None = None
    core_hour: Price | None = None
