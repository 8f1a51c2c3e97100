"""How the graph is put together, and nothing else."""

import gc

import dagster as dg

# Loading makes some million objects that all stay: the collector would walk them again and again, and find nothing.
gc.set_threshold(200_000, 20, 20)


@dg.definitions
def defs() -> dg.Definitions:
    """Everything of this deployment: assets from contracts, the outside from settings."""
    from leanops.settings import Settings
    from leanops_assets import jobs
    from leanops_assets.contracts.catch_up import build_catch_up_job
    from leanops_assets.contracts.job import contract_job, contracts_sensor
    from leanops_assets.contracts.rehearse import build_rehearse_job
    from leanops_assets.contracts.reload import build_graph_sensor
    from leanops_assets.factory import define_topics
    from leanops_assets.freshness import build_freshness, freshness_job
    from leanops_assets.lost_runs import lost_runs
    from leanops_assets.manifests import planned_manifest
    from leanops_assets.ops.error_groups import build_error_groups
    from leanops_assets.ops.maintenance import build_maintenance_job
    from leanops_assets.ops.reconciliation_log import build_reconciliation_log
    from leanops_assets.ops.retention import build_retention_job
    from leanops_assets.ops.topic_registry import build_topic_registry
    from leanops_assets.ops.trace import build_trace_job
    from leanops_assets.raw.dead_letters_job import (
        build_dead_letters_asset,
        build_dead_letters_job,
        build_dlq_retention_job,
    )
    from leanops_assets.raw.drain_job import build_drain_job, build_drain_sensor
    from leanops_assets.run_batch import BatchResource
    from leanops_assets.schedules import schedules
    from leanops_assets.sensors import build_tick_sensor, run_log
    from leanops_resources.dagster_resources import embedded_resources

    settings = Settings.load()
    planned = planned_manifest(settings)
    topics = define_topics(planned, settings)
    manifest = topics.manifest
    freshness = build_freshness(manifest)
    drain = build_drain_job(settings)
    return dg.Definitions(
        assets=[
            *topics.assets,
            build_dead_letters_asset(),
            build_topic_registry(manifest, topics.left_out, settings),
            build_reconciliation_log(manifest),
            build_error_groups(manifest),
        ],
        asset_checks=[freshness],
        jobs=[
            drain,
            build_dead_letters_job(settings),
            build_dlq_retention_job(),
            build_maintenance_job(manifest, settings),
            build_retention_job(planned, settings),
            jobs.tick,
            jobs.ledger,
            jobs.error_groups,
            jobs.topic_registry,
            freshness_job(freshness),
            build_trace_job(manifest),
            contract_job,
            build_catch_up_job(manifest),
            build_rehearse_job(manifest),
        ],
        schedules=schedules(),
        sensors=[
            build_drain_sensor(drain, settings),
            build_tick_sensor(manifest, settings),
            run_log,
            lost_runs,
            contracts_sensor,
            build_graph_sensor(planned, settings),
        ],
        resources={**embedded_resources(settings), "batch": BatchResource()},
        executor=dg.in_process_executor,
    )
