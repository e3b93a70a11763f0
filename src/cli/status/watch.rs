//! `belay status --watch`: on a terminal a screen that is kept up to date,
//! elsewhere a line for each change.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube::Client;
use serde::Serialize;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Instant, sleep_until},
};

use super::{
    Caller, PlanStatus,
    changes::changes,
    feed::{Feed, Wanted},
    list,
    render::{Layout, tree as drawn},
    screen::Screen,
    text::{Line, Tone},
    tree,
};
use crate::cli::{CliError, Document, Exit, Format, Invocation, Streams, clean, find::found_none};

/// Shortest time between two looks. What comes meanwhile is shown together.
const PACE: Duration = Duration::from_millis(250);
/// Longest time between two looks: times that are shown go on.
const TICK: Duration = Duration::from_secs(1);

/// How it is shown.
pub(super) struct View {
    /// A line for each plan instead of everything below it.
    pub(super) table: bool,
    /// Whether plans of several namespaces are shown.
    pub(super) namespaces: bool,
    /// A form for programs.
    pub(super) format: Option<Format>,
}

/// Shows plans until somebody ends it, or the plans that were named are gone.
pub(super) async fn run(
    client: Client,
    wanted: Wanted,
    view: &View,
    caller: &Caller,
    call: &mut Invocation<'_>,
) -> Result<Exit, CliError> {
    let named = wanted.names.len();
    // Of one that does not exist no plan would ever come, and nobody be told.
    let mut place = wanted.namespaces.first().cloned().filter(|_| named == 0);
    let mut feed = Feed::new(client.clone(), wanted);
    let mut resized = signal(SignalKind::window_change())?;
    let mut ended = signal(SignalKind::terminate())?;
    let color = call.access.color.unwrap_or_default();
    let mut screen = match view.format {
        None => Screen::enter(color)?,
        Some(_) => None,
    };
    let mut known: BTreeMap<(String, String), PlanStatus> = BTreeMap::new();
    let mut noted = BTreeSet::new();
    let mut due = Instant::now();
    let mut changed = true;
    if let Some(screen) = &mut screen {
        screen.show(unknown(&feed))?;
    }
    loop {
        let look = if changed { due } else { due + TICK - PACE };
        tokio::select! {
            alive = feed.next() => {
                changed = true;
                if !alive {
                    return Ok(Exit::Done);
                }
                continue;
            }
            _ = resized.recv() => {}
            _ = ended.recv() => return Ok(Exit::Interrupted),
            () = sleep_until(look), if feed.is_complete() => {}
        }
        if !feed.is_complete() {
            continue;
        }
        if let Some(status) = feed.over() {
            drop(screen);
            let error = kube::Error::Api(Box::new(status.clone()));
            return Err(CliError::api("watch releaseplans", error));
        }
        let now = call.clock.now();
        let plans = look_at(&feed, view, caller, now);
        if feed.is_known()
            && let Some(namespace) = place.take().filter(|_| plans.is_empty())
        {
            let mut told = Vec::new();
            let asked = {
                let mut aside = Streams {
                    out: &mut std::io::sink(),
                    err: &mut told,
                    width: None,
                    height: None,
                };
                found_none(&client, &namespace, &mut aside).await
            };
            if let Err(error) = asked {
                drop(screen);
                return Err(error);
            }
            if screen.is_none() {
                call.streams.err.write_all(&told)?;
            }
        }
        match &mut screen {
            Some(screen) => screen.show(lines(&plans, &feed, view, now, screen.layout()))?,
            None => {
                append(&plans, &mut known, view.format, now, call)?;
                note(&feed, view, &mut noted, call)?;
            }
        }
        match feed.fault() {
            Some((text, true)) => {
                drop(screen);
                let hint = "without --watch, one plan that is named needs only get";
                return Err(CliError::refused(text, hint));
            }
            None if named > 0 && plans.is_empty() && feed.is_known() => {
                drop(screen);
                writeln!(call.streams.err, "the plan is gone")?;
                return Ok(Exit::Done);
            }
            Some((_, false)) | None => {}
        }
        changed = false;
        due = Instant::now() + PACE;
    }
}

fn look_at(
    feed: &Feed,
    view: &View,
    caller: &Caller,
    now: k8s_openapi::jiff::Timestamp,
) -> Vec<PlanStatus> {
    let stored = feed.plans();
    if view.table {
        let lines = stored.iter().map(|plan| {
            let world = feed.world(super::fetch::namespace_of(plan));
            tree::line(plan, &world, now, caller)
        });
        return lines.collect();
    }
    let mut worlds = BTreeMap::new();
    let trees = stored.iter().map(|plan| {
        let namespace = super::fetch::namespace_of(plan);
        let world = worlds
            .entry(namespace)
            .or_insert_with(|| feed.world(namespace));
        tree::tree(plan, world, now, caller)
    });
    trees.collect()
}

pub(super) fn lines(
    plans: &[PlanStatus],
    feed: &Feed,
    view: &View,
    now: k8s_openapi::jiff::Timestamp,
    layout: Layout,
) -> Vec<Line> {
    if !feed.is_known() && plans.is_empty() {
        return unknown(feed);
    }
    if view.table {
        let mut plans = plans.to_vec();
        list::sort(&mut plans);
        let mut lines = list::table(&plans, view.namespaces, now, layout);
        if plans.is_empty() {
            lines = vec![Line::of(Tone::Plain, "There are no plans.")];
        }
        for note in feed.notes() {
            lines.push(Line::of(Tone::Waits, &format!("! {note}")));
        }
        return lines;
    }
    let mut lines = Vec::new();
    for plan in plans {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.extend(drawn(plan, now, layout));
    }
    lines
}

/// What is shown before the API server has told what there is.
fn unknown(feed: &Feed) -> Vec<Line> {
    let text = "Not known yet: waiting for the API server …";
    let mut lines = vec![Line::of(Tone::Waits, text)];
    for note in feed.notes() {
        lines.push(Line::of(Tone::Waits, &format!("! {note}")));
    }
    lines
}

/// Tells beside the answer what is not known; below a plan it is part of the
/// answer.
fn note(
    feed: &Feed,
    view: &View,
    noted: &mut BTreeSet<String>,
    call: &mut Invocation<'_>,
) -> Result<(), CliError> {
    let notes: BTreeSet<String> = feed.notes().into_iter().collect();
    if view.table || view.format.is_some() || !feed.is_known() {
        for new in notes.difference(noted) {
            writeln!(call.streams.err, "note: {}", clean(new))?;
        }
    }
    *noted = notes;
    Ok(())
}

/// A plan that was shown and does not exist any more.
#[derive(Serialize)]
struct Gone<'a> {
    namespace: &'a str,
    name: &'a str,
}

/// One of many documents: a line of JSON, or YAML with its separator.
fn written<T: Serialize>(format: Format, document: &Document<T>) -> Result<String, CliError> {
    match format {
        Format::Yaml => serde_saphyr::to_string(document)
            .map(|text| format!("---\n{text}"))
            .map_err(|error| CliError::Form(error.to_string())),
        Format::Json | Format::Name => {
            serde_json::to_string(document).map_err(|error| CliError::Form(error.to_string()))
        }
    }
}

/// Writes what changed since it was last written.
fn append(
    plans: &[PlanStatus],
    known: &mut BTreeMap<(String, String), PlanStatus>,
    format: Option<Format>,
    now: k8s_openapi::jiff::Timestamp,
    call: &mut Invocation<'_>,
) -> Result<(), CliError> {
    let mut gone = std::mem::take(known);
    for plan in plans {
        let key = (plan.namespace.clone(), plan.name.clone());
        let before = gone.remove(&key);
        match format {
            None => {
                for line in changes(before.as_ref(), plan, now) {
                    writeln!(call.streams.out, "{}", clean(&line))?;
                }
            }
            Some(_) if before.as_ref() == Some(plan) => {}
            Some(format) => {
                let text = written(format, &Document::new("PlanStatus", plan))?;
                writeln!(call.streams.out, "{text}")?;
            }
        }
        known.insert(key, plan.clone());
    }
    for (namespace, name) in gone.keys() {
        let text = match format {
            None => {
                let stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ");
                format!("{stamp} {namespace}/{name} is gone")
            }
            Some(format) => {
                let document = Document::new("PlanGone", Gone { namespace, name });
                written(format, &document)?
            }
        };
        writeln!(call.streams.out, "{text}")?;
    }
    call.streams.out.flush()?;
    Ok(())
}
