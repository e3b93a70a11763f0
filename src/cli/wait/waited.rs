//! One plan that is waited for: what was asked of it, and what has been seen.
//!
//! What the plan's word means is decided in [`super::verdict`], and whether it is
//! about what is live in [`super::live`].

use std::time::{Duration, Instant};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::{
    is,
    live::{Live, Unlike, Word},
    orders::Orders,
    reads::Reads,
    verdict::{self, Outcome, State, generation, judge, of_deployments},
};
use crate::{
    api::{Reason, Stage, StoredPlan},
    cli::{
        CliError, Session, Streams, Target, clean,
        find::readable,
        status::{
            Caller,
            away::OVERDUE,
            look,
            pods::age,
            text::span,
            verdict::{AWAY, last_edit, overdue},
        },
    },
};

/// Longest time that a stop is doubted because something else is live: the
/// operator has seen that by then.
const DOUBT: Duration = Duration::from_secs(10);

/// A plan that is waited for.
pub(super) struct Waited {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: Option<String>,
    pub(super) asked: Option<i64>,
    /// Whether a release generation of the plan was named.
    bound: bool,
    /// What has to be what the plan's word is about.
    live: Live,
    /// What is live and is newer than the plan's word.
    pub(super) unlike: Vec<Unlike>,
    /// Since when it is not certain that it is.
    unsure: Option<Instant>,
    /// The time of the only look, where nothing is waited for.
    once: Option<Timestamp>,
    /// The orders that are part of what is waited for.
    orders: Orders,
    pub(super) state: State,
    pub(super) over: bool,
    /// When the plan was edited last.
    edited: Option<Time>,
    /// The last line about its progress.
    told: String,
    /// The plan as it was seen last.
    last: StoredPlan,
}

impl Waited {
    /// A plan as it is at the first look. `asked` is the release generation that
    /// was named: by a file as well as, if `bound`, on the command line.
    pub(super) fn new(
        plan: StoredPlan,
        targets: &[Target],
        namespace: &str,
        (asked, bound): (Option<i64>, bool),
        once: Option<Timestamp>,
    ) -> Self {
        // Whoever names a generation waits for content, and for nobody's order.
        let orders = match asked {
            Some(_) => Orders::default(),
            None => Orders::on(&plan, generation(&plan)),
        };
        let asked = asked.or_else(|| generation(&plan));
        let is_another = targets.iter().any(|target| {
            let uid = target.uid.as_ref();
            uid.is_some_and(|uid| Some(uid) != plan.metadata.uid.as_ref())
                && is(target, &plan, namespace)
        });
        let mut one = Self {
            namespace: plan.metadata.namespace.clone().unwrap_or_default(),
            name: plan.metadata.name.clone().unwrap_or_default(),
            uid: plan.metadata.uid.clone(),
            asked,
            bound,
            live: Live::of(&plan, targets, namespace),
            unlike: Vec::new(),
            unsure: None,
            once,
            orders,
            state: judge(&plan, asked),
            over: false,
            edited: last_edit(&plan.metadata),
            told: String::new(),
            last: plan,
        };
        if is_another {
            // Nothing of it is about what was asked for.
            (one.state.revision, one.state.stable) = (None, None);
            one.replaced();
        }
        one
    }

    /// How it ended; none while it goes on.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.state.outcome.filter(|_| self.over)
    }

    /// Whether the plan has said how it ended, but perhaps of what was live before.
    pub(super) fn is_doubted(&self) -> bool {
        !self.over && self.state.outcome.is_some()
    }

    /// Takes in what the plan says now.
    pub(super) async fn see(
        &mut self,
        plan: &StoredPlan,
        reads: &mut Reads<'_>,
        streams: &mut Streams<'_>,
    ) -> Result<(), CliError> {
        readable(plan)?;
        let theirs = self.live.deployments().filter(|_| !self.bound);
        if theirs.is_some() {
            // Newer content of the plan has what was applied to a Deployment in
            // it, whoever changed what else: its release is the one to wait for.
            self.asked = generation(plan);
        }
        let mut state = judge(plan, self.asked);
        if let Some(templated) = theirs {
            state = of_deployments(state, plan, templated);
        }
        self.edited = last_edit(&plan.metadata);
        let dropped = self.orders.dropped(plan);
        let superseded = state.outcome == Some(Outcome::Superseded);
        if let Some(decision) = dropped.filter(|_| !superseded) {
            state.outcome = Some(Outcome::Ignored);
            state.reason = decision.reason.as_str().to_owned();
            state.message.clone_from(&decision.message);
            (self.state, self.over) = (state, true);
            return Ok(());
        }
        (self.state, self.over) = (state.clone(), false);
        self.unlike.clear();
        if state.outcome.is_some() {
            self.over = match self.live.word(plan, &state, reads).await? {
                Word::Current => true,
                Word::Older(unlike) => {
                    self.unlike = unlike;
                    false
                }
                Word::Unsure(since) => self.is_long(since),
            };
        }
        if state.outcome.is_none() || self.over {
            self.unsure = None;
        }
        let step = state.step.as_deref().unwrap_or_default();
        let what = match state.reason.as_str() {
            verdict::UNSEEN => &state.message,
            reason => reason,
        };
        let line = format!("{}: {what} {step}", self.name);
        if !self.over && self.told != line {
            writeln!(streams.err, "{}", clean(line.trim_end()))?;
            self.told = line;
        }
        Ok(())
    }

    /// Whether the operator had the time to see what is live, and so need not
    /// judge it. It was changed at `since`, if that is known.
    fn is_long(&mut self, since: Option<Timestamp>) -> bool {
        match self.once {
            Some(now) => since.is_some_and(|since| age(&Time(since), now) >= DOUBT),
            // By this clock alone: that of the cluster may be another.
            None => self.unsure.get_or_insert_with(Instant::now).elapsed() >= DOUBT,
        }
    }

    /// Takes in what the plan says while it is followed, where errors of reading
    /// pass.
    pub(super) async fn look(
        &mut self,
        plan: &StoredPlan,
        reads: &mut Reads<'_>,
        streams: &mut Streams<'_>,
    ) -> Result<(), CliError> {
        self.last = plan.clone();
        match self.see(plan, reads, streams).await {
            Err(error) if passes(&error) => Ok(()),
            seen => seen,
        }
    }

    /// The same of the plan as it was seen last.
    pub(super) async fn look_again(
        &mut self,
        reads: &mut Reads<'_>,
        streams: &mut Streams<'_>,
    ) -> Result<(), CliError> {
        let plan = std::mem::take(&mut self.last);
        self.look(&plan, reads, streams).await
    }

    /// Whether the plan says that something goes on.
    fn goes_on(&self) -> bool {
        self.state.outcome.is_none() && self.state.reason != verdict::UNSEEN
    }

    /// The tracked ConfigMaps whose contents the operator has not seen, where that
    /// may be why something goes on.
    pub(super) async fn unseen(&self, reads: &mut Reads<'_>) -> Vec<Unlike> {
        if !self.goes_on() || self.state.reason == Reason::ReconcileError.as_str() {
            return Vec::new();
        }
        // It is told without them.
        let unseen = self.live.unseen(&self.last, reads).await;
        unseen.unwrap_or_default()
    }

    /// When a crash loop had to be judged that nobody did, as `status` tells it.
    pub(super) async fn unjudged(
        &self,
        session: &Session,
        now: Timestamp,
        caller: &Caller,
    ) -> Option<Time> {
        let release = self.last.status.as_ref()?.release.as_ref()?;
        let judged = matches!(release.stage, Stage::Promote | Stage::Bake);
        if !judged || !self.goes_on() || self.state.open.is_some() {
            return None;
        }
        let shown = look(&session.client, &self.last, now, caller).await.ok()?;
        let verdict = shown.verdict;
        verdict.since.filter(|_| verdict.reason == OVERDUE)
    }

    /// Says at a timeout if it is the operator that did not come. `unseen` are the
    /// ConfigMaps that it has not looked at, and `due` is when pods had to be judged.
    pub(super) fn late(
        &mut self,
        timeout: Duration,
        now: Timestamp,
        caller: &Caller,
        (unseen, due): (&[Unlike], Option<Time>),
    ) {
        if let Some(open) = self.state.open.take() {
            let given = open.at.map(|at| age(&Time(at), now));
            let waited = given.unwrap_or(timeout);
            if waited > AWAY {
                let given =
                    given.map_or_else(String::new, |_| format!(", given {} ago", span(waited)));
                self.away(
                    &format!("nobody has carried out {}{given}", open.order),
                    caller,
                );
            }
            return;
        }
        if self.goes_on() {
            if let Some(due) = overdue(&self.last, now).or(due) {
                let late = span(age(&due, now));
                let what = format!("nobody has judged this since it was due, {late} ago");
                return self.away(&what, caller);
            }
            if let Some(what) = overlooked(unseen, timeout, now) {
                self.away(&what, caller);
            }
            return;
        }
        // A verdict that is about something older tells nothing of when.
        let edited = self
            .edited
            .as_ref()
            .filter(|_| self.state.outcome.is_none());
        let waited = edited.map_or(timeout, |at| age(at, now));
        self.state.reason = verdict::UNSEEN.to_owned();
        verdict::NOT_YET.clone_into(&mut self.state.message);
        if let Some(what) = overlooked(&self.unlike, timeout, now) {
            return self.away(&what, caller);
        }
        if waited <= AWAY {
            // What was deleted does not say when.
            if let Some(unlike) = self.unlike.iter().find(|unlike| unlike.at.is_none()) {
                let what = &unlike.what;
                let text = format!(
                    "{}: {what} was deleted or changed, and when is not known; if this lasts",
                    verdict::NOT_YET
                );
                self.away(&text, caller);
            }
            return;
        }
        let made = edited.map_or_else(String::new, |_| format!(", made {} ago", span(waited)));
        self.away(&format!("nobody has looked at this change{made}"), caller);
    }

    /// Says what an operator that runs would have done.
    fn away(&mut self, what: &str, caller: &Caller) {
        let check = caller.command("check", "", "", &self.namespace);
        verdict::UNSEEN.clone_into(&mut self.state.reason);
        self.state.message = format!("{what}: is the operator running? {check}");
    }

    /// The plan is not there any more.
    pub(super) fn gone(&mut self) {
        self.over = true;
        self.state = State {
            outcome: Some(Outcome::Deleted),
            reason: "Deleted".into(),
            message: "the plan was deleted".into(),
            step: None,
            revision: self.state.revision.take(),
            stable: self.state.stable.take(),
            open: None,
        };
    }

    /// The plan of this name is another one.
    pub(super) fn replaced(&mut self) {
        self.gone();
        "the plan was deleted, and the one of this name now is another"
            .clone_into(&mut self.state.message);
    }
}

/// The first of what is live that an operator that runs would have looked at by now.
fn overlooked(unlike: &[Unlike], timeout: Duration, now: Timestamp) -> Option<String> {
    unlike.iter().find_map(|Unlike { what, at }| {
        let edited = at.map(|at| age(&Time(at), now));
        if edited.unwrap_or(timeout) <= AWAY {
            return None;
        }
        let edited = edited.map(|edited| format!(", edited {} ago", span(edited)));
        let edited = edited.unwrap_or_default();
        Some(format!("nobody has looked at {what} as it is now{edited}"))
    })
}

/// Whether an error of reading may be over at the next look.
pub(super) fn passes(error: &CliError) -> bool {
    match error {
        CliError::Api { source, .. } => {
            !matches!(&**source, kube::Error::Api(status) if matches!(status.code, 401 | 403))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::testing::{conditions, noon, session, with};

    /// Of the one look there is no time of this process to measure.
    #[test]
    fn without_a_wait_a_doubt_is_as_old_as_what_is_unlike() {
        let doubted = |since: Option<&str>| {
            let mut one = Waited::new(with(|_| {}), &[], "s", (None, false), Some(noon()));
            !one.is_long(since.map(|since| since.parse().unwrap()))
        };
        assert!(!doubted(Some("2026-03-01T11:59:50Z")));
        assert!(doubted(Some("2026-03-01T11:59:51Z")));
        assert!(doubted(Some("2026-03-01T12:00:30Z")));
        assert!(doubted(None));
        let mut followed = Waited::new(with(|_| {}), &[], "s", (None, false), None);
        assert!(!followed.is_long(Some("2026-03-01T11:00:00Z".parse().unwrap())));
    }

    /// The answer to `kubectl apply` names the object that it was about.
    #[test]
    fn a_plan_that_was_made_anew_is_not_the_one_of_the_file() {
        let of = |name: &str, uid: Option<&str>| {
            let target = Target {
                uid: uid.map(str::to_owned),
                ..name.parse().unwrap()
            };
            Waited::new(with(|_| {}), &[target], "s", (Some(1), false), None)
        };
        let one = of("shop", Some("u0"));
        assert_eq!(one.outcome(), Some(Outcome::Deleted));
        assert_eq!((&one.state.revision, &one.state.stable), (&None, &None));
        for (name, uid) in [
            ("shop", Some("u1")),
            ("shop", None),
            ("other", Some("u0")),
            ("deploy/shop", Some("u0")),
        ] {
            assert_eq!(of(name, uid).outcome(), None, "{name} {uid:?}");
        }
    }

    /// An order belongs to whoever waits for no content of their own.
    #[test]
    fn who_names_a_generation_waits_for_nobodys_order() {
        let plan = || {
            with(|plan| {
                plan["metadata"]["annotations"]["belay.dev/undo"] = "shop-1".into();
                plan["status"]["decisions"] = serde_json::json!([]);
            })
        };
        let dropped = with(|plan| {
            plan["status"]["decisions"] = serde_json::json!([{
                "at": "2027-01-01T00:00:03Z", "reason": "UndoIgnored",
                "message": "belay.dev/undo names shop-1: newer content came after it",
            }]);
        });
        for (asked, told) in [
            ((None, false), true),
            ((Some(4), false), false),
            ((Some(4), true), false),
        ] {
            let one = Waited::new(plan(), &[], "s", asked, None);
            assert_eq!(one.orders.dropped(&dropped).is_some(), told, "{asked:?}");
        }
    }

    /// The one rule of `status`, which reads the pods.
    #[tokio::test]
    async fn a_wait_asks_for_the_operator_in_a_crash_loop_that_nobody_judged() {
        let server = session(|path| {
            let owner = |kind: &str, uid: &str| json!([{"apiVersion": "v1", "kind": kind, "name": uid, "uid": uid}]);
            let number = json!({"deployment.kubernetes.io/revision": "2"});
            let (version, kind, item) = match path.rsplit('/').next()? {
                "deployments" => (
                    "apps/v1",
                    "Deployment",
                    json!({
                        "metadata": {"name": "web", "uid": "d", "annotations": number},
                        "spec": {"selector": {"matchLabels": {"app": "web"}}},
                    }),
                ),
                "replicasets" => (
                    "apps/v1",
                    "ReplicaSet",
                    json!({
                        "metadata": {"name": "web-2", "uid": "r", "annotations": number,
                                     "ownerReferences": owner("Deployment", "d")},
                    }),
                ),
                "pods" => (
                    "v1",
                    "Pod",
                    json!({
                        "metadata": {"name": "web-2-a", "creationTimestamp": "2026-03-01T11:59:00Z",
                                     "ownerReferences": owner("ReplicaSet", "r")},
                        "status": {"phase": "Running", "containerStatuses": [{
                            "name": "app", "ready": false, "restartCount": 3, "image": "", "imageID": "",
                            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                            "lastState": {"terminated": {"exitCode": 1,
                                "startedAt": "2026-03-01T11:59:40Z",
                                "finishedAt": "2026-03-01T11:59:41Z"}}}]},
                    }),
                ),
                _ => return None,
            };
            Some(
                json!({"kind": format!("{kind}List"), "apiVersion": version, "metadata": {},
                        "items": [item]}),
            )
        });
        let plan = with(|plan| {
            let status = &mut plan["status"];
            status["conditions"] = conditions("False", "Promoting", "1 of 2");
            status["phase"] = json!("RollingOut");
            status["components"] = json!([{"name": "web", "state": "Updating",
                "workload": {"kind": "Deployment", "name": "web"}}]);
            status["release"] = json!({
                "number": 2, "kind": "Content", "stage": "Promote", "content": "c",
                "startedAt": "2026-03-01T11:59:00.000000Z",
                "stageSince": "2026-03-01T11:59:00.000000Z", "applied": ["shop-cccc"],
            });
        });
        let mut one = Waited::new(plan, &[], "s", (None, false), Some(noon()));
        let caller = Caller::default();
        let soon = "2026-03-01T11:59:45Z".parse().unwrap();
        assert_eq!(one.unjudged(&server, soon, &caller).await, None);
        let nobody = session(|_| None);
        assert_eq!(one.unjudged(&nobody, noon(), &caller).await, None);
        let due = one.unjudged(&server, noon(), &caller).await;
        one.late(Duration::ZERO, noon(), &caller, (&[], due));
        assert_eq!(
            one.state.message,
            "nobody has judged this since it was due, 20s ago: is the operator running? belay check -n s"
        );
    }
}
