"""The days of the platform. One definition for all assets: only then can they share a run."""

from datetime import date
from functools import cache

import dagster as dg


@cache
def publish_days(first_day: date) -> dg.DailyPartitionsDefinition:
    """One partition per publish day (UTC), from the first day up to tomorrow: messages may be a day ahead."""
    return dg.DailyPartitionsDefinition(start_date=first_day.isoformat(), timezone="UTC", end_offset=2)
