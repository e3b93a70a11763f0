//! What the shell offers while a command is typed: verbs and flags, and the
//! names of plans, revisions, namespaces and contexts that there are.
//!
//! Whatever goes wrong here is silent, and nothing takes longer than a person
//! waits for the Tab key: what is not there in time is not offered.

use std::{
    ffi::{OsStr, OsString},
    io::Write,
    sync::mpsc,
    time::Duration,
};

use clap::{ArgMatches, Args, CommandFactory as _};
use clap_complete::{
    CompleteEnv,
    engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate, complete},
    env::Shells,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::ListParams};

use super::{
    Access, CliError, Exit, Invocation, Kind, OnePlan, Program, Session, Target,
    access::kubeconfig, clean, find,
};
use crate::{
    api::{ReleasePlanStatus, StoredPlan},
    config::Cli,
    plan::{abortable, retryable, targets_of, undoable},
};

/// The variable by which a shell asks.
const VARIABLE: &str = "COMPLETE";
/// Longest wait for the cluster.
const DEADLINE: Duration = Duration::from_millis(800);
/// Tells kubectl not to offer the names of files.
const NO_FILES: &str = ":4";

/// Which shell.
#[derive(Args, Clone, Debug)]
pub struct CompletionArgs {
    /// bash, elvish, fish, powershell or zsh.
    #[arg(value_parser = ["bash", "elvish", "fish", "powershell", "zsh"])]
    shell: String,
}

/// Prints what makes a shell ask.
///
/// # Errors
/// The answer cannot be written.
pub(super) fn run(args: &CompletionArgs, call: &mut Invocation<'_>) -> Result<Exit, CliError> {
    let shells = Shells::builtins();
    let Some(shell) = shells.completer(&args.shell) else {
        return Err(CliError::usage("no such shell", "belay completion bash"));
    };
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "belay", "belay", "belay", &mut script)?;
    call.streams.out.write_all(&script)?;
    Ok(Exit::Done)
}

/// Answers a shell that asks, if one does.
///
/// # Errors
/// The answer cannot be written.
pub fn answer_shell() -> Result<bool, clap::Error> {
    let here = std::env::current_dir().ok();
    CompleteEnv::with_factory(|| Program::Belay.command())
        .var(VARIABLE)
        .try_complete(std::env::args_os(), here.as_deref())
}

/// Answers kubectl, which calls `kubectl_complete-belay` with the words typed
/// after `kubectl belay`.
///
/// # Errors
/// The answer cannot be written.
pub fn answer_kubectl(words: Vec<OsString>, out: &mut dyn Write) -> Result<(), std::io::Error> {
    let here = std::env::current_dir().ok();
    let mut line = vec![OsString::from("belay")];
    line.extend(words);
    if line.len() == 1 {
        line.push(OsString::new());
    }
    let last = line.len() - 1;
    let mut command = Program::Plugin.command();
    for candidate in complete(&mut command, line, last, here.as_deref())? {
        if candidate.is_hide_set() {
            continue;
        }
        let value = candidate.get_value().to_string_lossy();
        match candidate.get_help() {
            Some(help) => writeln!(out, "{value}\t{help}")?,
            None => writeln!(out, "{value}")?,
        }
    }
    writeln!(out, "{NO_FILES}")
}

/// Offers plans by their names; after `TYPE/`, whatever there is of that type.
pub(super) fn targets() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let typed = typed.to_string_lossy().into_owned();
        ask(move |_, session| async move {
            let plans = session.list(Some(&session.namespace), None).await.ok()?;
            Some(offers(&typed, &plans))
        })
    })
}

fn offers(typed: &str, plans: &[StoredPlan]) -> Vec<CompletionCandidate> {
    let (prefix, kind) = match typed.split_once('/') {
        None => (String::new(), Kind::Plan),
        Some((kind, _)) => match kind.parse() {
            Ok(parsed) => (format!("{kind}/"), parsed),
            Err(_) => return Vec::new(),
        },
    };
    let mut offers: Vec<(String, String)> = Vec::new();
    for plan in plans {
        let name = plan.metadata.name.clone().unwrap_or_default();
        match kind {
            Kind::Plan => {
                let status = plan.status.as_ref();
                let ready = status.and_then(|s| s.conditions.iter().find(|c| c.type_ == "Ready"));
                let reason = ready.map(|ready| ready.reason.clone());
                offers.push((name, reason.unwrap_or_default()));
            }
            Kind::Deployment => {
                let workloads = targets_of(plan).into_iter().map(|target| target.name);
                offers.extend(workloads.map(|workload| (workload, format!("plan {name}"))));
            }
        }
    }
    let offers = offers.into_iter().map(|(name, help)| {
        let help = (!help.is_empty()).then(|| clean(&help).into());
        CompletionCandidate::new(format!("{prefix}{name}")).help(help)
    });
    offers
        .filter(|offer| offer.get_value().to_string_lossy().starts_with(typed))
        .collect()
}

/// Offers the revision that an abort can name.
pub(super) fn abortable_revisions() -> ArgValueCandidates {
    revisions(|status| abortable(status).into_iter().collect())
}

/// Offers the revisions that an undo can name.
pub(super) fn undoable_revisions() -> ArgValueCandidates {
    revisions(undoable)
}

/// Offers the revisions that a retry can name.
pub(super) fn retryable_revisions() -> ArgValueCandidates {
    revisions(retryable)
}

fn revisions(of: fn(&ReleasePlanStatus) -> Vec<&str>) -> ArgValueCandidates {
    ArgValueCandidates::new(move || {
        ask(move |line, session| async move {
            let one = OnePlan {
                target: line.target,
                file: None,
            };
            let plan = session.plan(&one).await.ok()?;
            let status = plan.status.as_ref()?;
            let names = of(status);
            Some(
                names
                    .into_iter()
                    .rev()
                    .map(|name| CompletionCandidate::new(clean(name)))
                    .collect(),
            )
        })
    })
}

/// Offers namespaces.
pub(super) fn namespaces() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        ask(|_, session| async move {
            let api = Api::<Namespace>::all(session.client);
            let all = find::list_all(&api, ListParams::default()).await.ok()?;
            let names = all.into_iter().filter_map(|n| n.metadata.name);
            Some(names.map(CompletionCandidate::new).collect())
        })
    })
}

/// Offers the contexts of the kubeconfig.
pub(super) fn contexts() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let named = Line::typed().and_then(|line| line.access.kubeconfig);
        let read = kubeconfig(named.as_ref());
        let contexts = read.map(|file| file.contexts).unwrap_or_default();
        let names = contexts.into_iter().map(|context| context.name);
        names.map(CompletionCandidate::new).collect()
    })
}

/// Asks the cluster that the line typed so far names.
fn ask<F, R>(question: F) -> Vec<CompletionCandidate>
where
    F: FnOnce(Line, Session) -> R + Send + 'static,
    R: Future<Output = Option<Vec<CompletionCandidate>>>,
{
    // Programs that a kubeconfig names for the login, and name resolution, hold
    // a thread up: not this one.
    let (told, answer) = mpsc::channel();
    std::thread::spawn(move || {
        // Nobody is there any more to tell.
        let _ = told.send(answered(question));
    });
    answer.recv_timeout(DEADLINE).unwrap_or_default()
}

fn answered<F, R>(question: F) -> Vec<CompletionCandidate>
where
    F: FnOnce(Line, Session) -> R,
    R: Future<Output = Option<Vec<CompletionCandidate>>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        return Vec::new();
    };
    let asked = async {
        let line = Line::typed().unwrap_or_default();
        let session = line.access.connect().await.ok()?;
        question(line, session).await
    };
    let answer = runtime.block_on(async { tokio::time::timeout(DEADLINE, asked).await });
    answer.ok().flatten().unwrap_or_default()
}

/// What is typed so far, as far as it says which cluster and which plan.
#[derive(Default)]
struct Line {
    access: Access,
    target: Option<Target>,
}

impl Line {
    /// From the words that the shell handed over.
    fn typed() -> Option<Self> {
        let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
        // Shells put the line after `--`, kubectl hands it over as it is.
        if let Some(dashes) = words.iter().position(|word| word == "--") {
            words.drain(..=(dashes + 1).min(words.len() - 1));
        }
        Self::of(words)
    }

    fn of(words: Vec<OsString>) -> Option<Self> {
        let line = std::iter::once(OsString::from("belay")).chain(words);
        let command = Cli::command().ignore_errors(true);
        let matches = command.try_get_matches_from(line).ok()?;
        let inner = matches.subcommand().map(|(_, inner)| inner);
        let access = inner.map(access).unwrap_or_default().over(access(&matches));
        let target = inner.and_then(|inner| get(inner, "target"));
        Some(Self { access, target })
    }
}

fn access(matches: &ArgMatches) -> Access {
    Access {
        namespace: get(matches, "namespace"),
        context: get(matches, "context"),
        kubeconfig: get(matches, "kubeconfig"),
        as_user: get(matches, "as_user"),
        as_group: Vec::new(),
        color: None,
    }
}

fn get<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, id: &str) -> Option<T> {
    matches.try_get_one::<T>(id).ok().flatten().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn half_a_line_says_which_cluster_and_plan_are_meant() {
        let line = Line::of(words("undo shop -n s --to ")).unwrap();
        assert_eq!(line.access.namespace.as_deref(), Some("s"));
        assert_eq!(line.target.unwrap().name, "shop");
        let line = Line::of(words("-n s wait --context c ")).unwrap();
        assert_eq!(line.access.namespace.as_deref(), Some("s"));
        assert_eq!(line.access.context.as_deref(), Some("c"));
        assert!(Line::of(words("wait --nonsense x --namespace")).is_some());
    }

    #[test]
    fn what_is_offered_is_of_the_type_that_was_typed() {
        let plans = [super::super::testing::with(|_| {})];
        let offered = |typed: &str| -> Vec<String> {
            let offers = offers(typed, &plans);
            let values = offers.iter().map(|offer| offer.get_value());
            values.map(|v| v.to_string_lossy().into_owned()).collect()
        };
        assert_eq!(offered(""), ["shop"]);
        assert_eq!(offered("plan/s"), ["plan/shop"]);
        assert_eq!(offered("deploy/"), ["deploy/cart", "deploy/web"]);
        assert_eq!(offered("deploy/w"), ["deploy/web"]);
        assert!(offered("pod/").is_empty());
        assert!(offered("x").is_empty());
    }

    /// A shell writes the help to the terminal as it is.
    #[test]
    fn what_a_status_says_is_offered_without_what_could_move_the_cursor() {
        let plan = super::super::testing::with(|plan| {
            plan["status"]["conditions"][0]["reason"] = "Odd\u{9b}2J\u{1b}[m".into();
        });
        let offers = offers("", &[plan]);
        let help = offers[0].get_help().unwrap().to_string();
        assert_eq!(help, "Odd 2J [m");
    }

    #[test]
    fn kubectl_is_offered_verbs_and_told_not_to_offer_files() {
        let mut out = Vec::new();
        answer_kubectl(words("wa"), &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(out.starts_with("wait\t"), "{out}");
        assert!(out.ends_with("\n:4\n"), "{out}");
    }
}
