"""The part of a spec that says what storage and machines cost."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from milepost.spec.values.fields import SpecModel

Price = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=False)]


class PricesSpec(SpecModel):
    """What the job's providers ask, as their price lists or your contract say it; what has no price is in no estimate.

    Attributes:
        currency: what all prices are in: three letters, as USD.
        put_per_1000: 1,000 requests of the classes PUT, COPY, POST and LIST.
        get_per_1000: 1,000 requests of the classes GET and HEAD. Deletes are free where S3 is rented.
        out_per_gb: 10^9 bytes that leave the storage, where its machines are in another region; else leave it out.
        storage_per_gb_month: 10^9 bytes stored for a month.
        core_hour: a core of the machines that run Spark's tasks, for an hour.
    """

    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = "USD"
    put_per_1000: Price | None = None
    get_per_1000: Price | None = None
    out_per_gb: Price | None = None
    storage_per_gb_month: Price | None = None
    core_hour: Price | None = None
