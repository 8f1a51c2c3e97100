"""What runs by the clock. All of it is on by default, and all of it is in the UI.

| schedule | when | what |
|---|---|---|
| topic_registry_hourly | every hour, at 5 past | draws `ops_db.topic_registry` anew |
| freshness_hourly | every hour, at 10 past | finds topics that went silent |
| error_groups_hourly | every hour, at 20 past | draws `ops_db.error_groups` anew |
| ledger_nightly | every day at 02:30 UTC | draws up the ledger of all topics over all days |
| dlq_retention_nightly | every day at 03:30 UTC | removes the bodies of closed dead letters after 14 days |
| maintenance_nightly | every day at 03:00 UTC | compacts files, expires snapshots (`ops/maintenance.py`) |
| maintenance_weekly | Sundays at 05:00 UTC | that, and removes lost files |
| retention_nightly | every day at 04:00 UTC | removes what Dagster wrote down of old runs (`ops/retention.py`) |
"""

import dagster as dg

_CRONS = {
    "topic_registry_hourly": ("topic_registry", "5 * * * *"),
    "freshness_hourly": ("freshness", "10 * * * *"),
    "error_groups_hourly": ("error_groups", "20 * * * *"),
    "ledger_nightly": ("ledger", "30 2 * * *"),
    "maintenance_nightly": ("maintenance", "0 3 * * *"),
    "maintenance_weekly": ("maintenance", "0 5 * * 0"),
    "dlq_retention_nightly": ("dlq_retention", "30 3 * * *"),
    "retention_nightly": ("retention", "0 4 * * *"),
}
_CONFIGS = {"maintenance_weekly": {"ops": {"maintain": {"config": {"weekly": True}}}}}


def schedules() -> list[dg.ScheduleDefinition]:
    """Every schedule of the platform."""
    return [
        dg.ScheduleDefinition(
            name=name,
            job_name=job,
            cron_schedule=cron,
            run_config=_CONFIGS.get(name),
            execution_timezone="UTC",
            default_status=dg.DefaultScheduleStatus.RUNNING,
        )
        for name, (job, cron) in _CRONS.items()
    ]
