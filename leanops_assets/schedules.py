"""What runs by the clock. All of it is on by default, and all of it is in the UI.

| schedule | when | what |
|---|---|---|
| topic_registry | every hour, at 5 past | draws `ops_db.topic_registry` anew |
"""

import dagster as dg

from leanops_assets import jobs


def schedules() -> list[dg.ScheduleDefinition]:
    """Every schedule of the platform."""
    return [
        dg.ScheduleDefinition(
            name="topic_registry_hourly",
            job=jobs.topic_registry,
            cron_schedule="5 * * * *",
            execution_timezone="UTC",
            default_status=dg.DefaultScheduleStatus.RUNNING,
        )
    ]
