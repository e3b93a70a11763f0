//! `bench`: what the operator costs and how fast it is, measured from outside
//! on a fresh local control plane: by the audit log, `/metrics` and `/proc`.
//! The pods are simulated, so nothing here is about images or containers.

mod load;
mod measure;
mod table;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use belay_testenv::{Cluster, ClusterOptions, Operator, OperatorOptions};

use crate::error::Error;
use crate::{cargo, ui};
use load::Load;
use measure::{Meter, Sample, delays, percentile};
use table::Table;

/// What is to be measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Numbers of plans to measure with, each on a cluster of its own.
    #[arg(long, value_delimiter = ',', default_value = "1,50", value_parser = clap::value_parser!(u32).range(1..=2000))]
    plans: Vec<u32>,
    /// Seconds for which the idle operator is observed.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    idle: u64,
}

/// Everything measured with one number of plans.
struct Run {
    plans: u32,
    adoption: Sample,
    release: Sample,
    rollback: Sample,
    idle: Sample,
    delays: Vec<Duration>,
    rss: u64,
    peak_rss: u64,
}

/// Measures and prints the table.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    ui::step("operator (release build)");
    let binary = cargo::build_release("belay")?;
    let mut runs = Vec::new();
    for plans in &options.plans {
        runs.push(measure(&binary, *plans, Duration::from_secs(options.idle))?);
    }
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    ui::say(&format!(
        "Machine: {cores} cores, shared with the control plane. Each plan: {} Deployments of {} simulated pods.",
        load::COMPONENTS.len(),
        load::REPLICAS,
    ));
    ui::say(&table(&runs, options.idle).to_string());
    Ok(())
}

fn measure(binary: &Path, plans: u32, idle: Duration) -> Result<Run, Error> {
    ui::step(&format!("{plans} plans: control plane and operator"));
    let cluster = Arc::new(Cluster::start(ClusterOptions::new())?);
    let operator = Operator::start(
        &cluster,
        &OperatorOptions::new(binary).arg("--drain").arg("0s"),
    )?;
    let load = Load::new(&cluster, plans);
    load.deployments()?;

    ui::step(&format!("{plans} plans: taking over what is live"));
    let meter = Meter::start(&cluster, &operator)?;
    load.plans("1", "1")?;
    load.wait_ready()?;
    let adoption = meter.stop()?;

    ui::step(&format!("{plans} plans: a good release"));
    let meter = Meter::start(&cluster, &operator)?;
    load.plans("2", "2")?;
    load.wait_ready()?;
    let release = meter.stop()?;

    ui::step(&format!("{plans} plans: a release that crash loops"));
    let meter = Meter::start(&cluster, &operator)?;
    load.plans("3", "3-crash")?;
    load.wait_rolled_back()?;
    let entries = meter.entries()?;
    let rollback = meter.stop()?;

    ui::step(&format!("{plans} plans: idle for {} s", idle.as_secs()));
    let meter = Meter::start(&cluster, &operator)?;
    // Not a wait for something: the time itself is what is measured.
    std::thread::sleep(idle);
    let idle = meter.stop_now()?;

    let usage = belay_testenv::Usage::of(operator.pid()?)?;
    Ok(Run {
        plans,
        adoption,
        release,
        rollback,
        idle,
        delays: delays(&entries),
        rss: usage.rss,
        peak_rss: usage.peak_rss,
    })
}

fn table(runs: &[Run], idle: u64) -> Table {
    let mut table = Table::new(runs.iter().map(|run| match run.plans {
        1 => "1 plan".to_owned(),
        many => format!("{many} plans"),
    }));
    let mut sample = |title: &str, of: fn(&Run) -> &Sample| {
        table.section(&format!("{title}, for each plan"));
        for resource in measure::RESOURCES {
            table.row(
                &format!("writes: {resource}"),
                runs.iter()
                    .map(|run| of(run).writes_per(resource, run.plans)),
            );
        }
        table.row(
            "writes in all",
            runs.iter().map(|run| of(run).all_writes_per(run.plans)),
        );
        table.row(
            "dry runs",
            runs.iter().map(|run| of(run).dry_runs_per(run.plans)),
        );
        table.row(
            "conflicts (409)",
            runs.iter().map(|run| of(run).conflicts_per(run.plans)),
        );
        table.row(
            "reads (get, list)",
            runs.iter().map(|run| of(run).reads_per(run.plans)),
        );
        table.row(
            "reconciles",
            runs.iter().map(|run| of(run).reconciles_per(run.plans)),
        );
        table.row(
            "operator CPU, ms",
            runs.iter().map(|run| of(run).cpu_per(run.plans)),
        );
        table.row(
            "all plans done after, s",
            runs.iter().map(|run| of(run).took()),
        );
    };
    sample("Taking over what is live", |run| &run.adoption);
    sample("Good release", |run| &run.release);
    sample("Crash loop and rollback", |run| &run.rollback);
    table.section("From the pod status that fulfils failFast to the first write back");
    let millis = |delay: Option<Duration>| {
        delay.map_or_else(
            || "-".to_owned(),
            |delay| format!("{:.0}", delay.as_secs_f64() * 1000.0),
        )
    };
    table.row(
        "measured",
        runs.iter().map(|run| run.delays.len().to_string()),
    );
    table.row(
        "p50, ms",
        runs.iter().map(|run| millis(percentile(&run.delays, 50))),
    );
    table.row(
        "p95, ms",
        runs.iter().map(|run| millis(percentile(&run.delays, 95))),
    );
    table.section(&format!("Idle for {idle} s, all plans"));
    table.row("writes", runs.iter().map(|run| run.idle.all_writes_per(1)));
    table.row("dry runs", runs.iter().map(|run| run.idle.dry_runs_per(1)));
    table.row(
        "reconciles",
        runs.iter().map(|run| run.idle.reconciles_per(1)),
    );
    table.row(
        "operator CPU, ms",
        runs.iter().map(|run| run.idle.cpu_per(1)),
    );
    table.section("Operator memory at the end");
    let mib = |bytes: u64| {
        format!(
            "{:.1}",
            Duration::from_millis(bytes * 1000 / 1024 / 1024).as_secs_f64()
        )
    };
    table.row("resident, MiB", runs.iter().map(|run| mib(run.rss)));
    table.row("highest, MiB", runs.iter().map(|run| mib(run.peak_rss)));
    table
}
