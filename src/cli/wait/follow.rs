//! Follows plans until all have come to an end: one watch for each namespace, and
//! what is live beside them looked at again each second.
//!
//! Judges nothing: [`super::waited`] takes in what is seen.

use std::{collections::BTreeSet, pin::Pin};

use futures::{Stream, StreamExt as _, future::ready, stream::select_all};
use kube::{
    Api,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watch_object, watcher},
    },
};

use super::{live::AGAIN, reads::Reads, waited::Waited};
use crate::{
    api::StoredPlan,
    cli::{CliError, Session, Streams},
};

/// Most changes that are taken in with one look at what is live.
const TOGETHER: usize = 500;

/// What a watch tells.
#[derive(Debug)]
enum Change {
    /// A plan is like this now.
    Is(Box<StoredPlan>),
    /// A plan of this name is gone.
    Gone(String),
    /// There are no plans but those of these names.
    Listed(BTreeSet<String>),
}

/// A change, and the namespace that it is in.
type Changes = Pin<Box<dyn Stream<Item = (String, watcher::Result<Change>)>>>;

/// Namespaces with several plans that are waited for.
pub(super) fn shared<'a>(namespaces: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let mut once = BTreeSet::new();
    let several = namespaces.filter(|namespace| !once.insert(*namespace));
    several.map(str::to_owned).collect()
}

/// Follows the plans until all have come to an end.
pub(super) async fn follow(
    session: &Session,
    waited: &mut [Waited],
    streams: &mut Streams<'_>,
) -> Result<(), CliError> {
    let shared = shared(waited.iter().map(|one| one.namespace.as_str()));
    let alone = waited.iter().filter(|one| !shared.contains(&one.namespace));
    let alone = alone.map(|one| of_one(session, &one.namespace, &one.name));
    let together = shared.iter().map(|namespace| of_all(session, namespace));
    let mut changes = select_all(alone.chain(together)).ready_chunks(TOGETHER);
    let mut look = tokio::time::interval(AGAIN);
    while waited.iter().any(|one| !one.over) {
        let changes = tokio::select! {
            changes = changes.next() => match changes {
                Some(changes) => changes,
                None => return Ok(()),
            },
            // A Deployment's change shows in the plan once the operator saw it.
            _ = look.tick() => Vec::new(),
        };
        let mut reads = Reads::new(session, &shared);
        if changes.is_empty() {
            for one in waited.iter_mut().filter(|one| one.is_doubted()) {
                one.look_again(&mut reads, streams).await?;
            }
        }
        for (namespace, change) in changes {
            let change = match change {
                Ok(change) => change,
                Err(error) => {
                    passing(error, &namespace)?;
                    continue;
                }
            };
            let here = waited
                .iter_mut()
                .filter(|one| !one.over && one.namespace == namespace);
            for one in here {
                match &change {
                    // A plan of the same name is another one.
                    Change::Is(plan) if plan.metadata.name.as_ref() == Some(&one.name) => {
                        if plan.metadata.uid == one.uid {
                            one.look(plan, &mut reads, streams).await?;
                        } else {
                            one.replaced();
                        }
                    }
                    Change::Gone(name) if *name == one.name => one.gone(),
                    Change::Listed(names) if !names.contains(&one.name) => one.gone(),
                    Change::Is(_) | Change::Gone(_) | Change::Listed(_) => {}
                }
            }
        }
    }
    Ok(())
}

/// Changes of one plan.
fn of_one(session: &Session, namespace: &str, name: &str) -> Changes {
    let api = Api::<StoredPlan>::namespaced(session.client.clone(), namespace);
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    let changes = watch_object(api, &name).default_backoff();
    Box::pin(changes.map(move |change| {
        let change = change.map(|plan| match plan {
            Some(plan) => Change::Is(Box::new(plan)),
            None => Change::Gone(name.clone()),
        });
        (namespace.clone(), change)
    }))
}

/// Changes of all plans of a namespace.
fn of_all(session: &Session, namespace: &str) -> Changes {
    let api = Api::<StoredPlan>::namespaced(session.client.clone(), namespace);
    let namespace = namespace.to_owned();
    let changes = watcher(api, watcher::Config::default()).default_backoff();
    let mut listed = BTreeSet::new();
    let changes = changes.filter_map(move |event| {
        let change = event.map(|event| told(event, &mut listed)).transpose();
        ready(change.map(|change| (namespace.clone(), change)))
    });
    Box::pin(changes)
}

/// What an event means; `listed` are the plans of a list that goes on.
fn told(event: Event<StoredPlan>, listed: &mut BTreeSet<String>) -> Option<Change> {
    match event {
        Event::Init => {
            listed.clear();
            None
        }
        Event::InitApply(plan) => {
            listed.extend(plan.metadata.name.clone());
            Some(Change::Is(Box::new(plan)))
        }
        Event::InitDone => Some(Change::Listed(std::mem::take(listed))),
        Event::Apply(plan) => Some(Change::Is(Box::new(plan))),
        Event::Delete(plan) => plan.metadata.name.map(Change::Gone),
    }
}

/// Goes on after errors that pass, such as a restart of the API server.
fn passing(error: watcher::Error, namespace: &str) -> Result<(), CliError> {
    match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) if matches!(&error, kube::Error::Api(status) if matches!(status.code, 401 | 403)) =>
        {
            let doing = format!("watch releaseplans of namespace {namespace}");
            Err(CliError::api(doing, error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::testing::with;

    #[test]
    fn plans_that_a_new_list_does_not_have_are_gone() {
        let mut listed = BTreeSet::new();
        let mut say = |event| told(event, &mut listed);
        assert!(say(Event::Init).is_none());
        let first = say(Event::InitApply(with(|_| {})));
        assert!(matches!(first, Some(Change::Is(_))), "{first:?}");
        let all = say(Event::InitDone);
        assert!(
            matches!(&all, Some(Change::Listed(names)) if names.iter().eq(["shop"])),
            "{all:?}"
        );
        say(Event::Init);
        let none = say(Event::InitDone);
        assert!(
            matches!(&none, Some(Change::Listed(names)) if names.is_empty()),
            "{none:?}"
        );
        let gone = say(Event::Delete(with(|_| {})));
        assert!(matches!(&gone, Some(Change::Gone(name)) if name == "shop"));
    }

    #[test]
    fn namespaces_are_shared_by_two_plans_or_more() {
        let names = shared(["a", "b", "a", "c", "a"].into_iter());
        assert!(names.iter().eq(["a"]), "{names:?}");
    }
}
