//! Owns the long tasks of the process.
//!
//! Nothing that runs for long is detached: a task that ends, fails or panics is
//! noticed here, under its name. What an end means is the caller's decision.

use std::{collections::HashMap, error::Error};

use tokio::{
    task::{Id, JoinSet},
    time::{Instant, timeout_at},
};

/// Any error of a task.
pub type TaskError = Box<dyn Error + Send + Sync>;

/// A task that ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) task: &'static str,
    /// Its error, or how it died.
    pub(super) outcome: Result<(), String>,
}

/// The running tasks. Dropping it aborts them.
#[derive(Debug, Default)]
pub(super) struct Supervisor {
    tasks: JoinSet<Result<(), TaskError>>,
    names: HashMap<Id, &'static str>,
}

impl Supervisor {
    /// Starts a task.
    pub(super) fn spawn(
        &mut self,
        task: &'static str,
        work: impl Future<Output = Result<(), TaskError>> + Send + 'static,
    ) {
        let id = self.tasks.spawn(work).id();
        self.names.insert(id, task);
    }

    /// The next task to end. Never returns if none is left.
    pub(super) async fn next(&mut self) -> Ended {
        let (id, outcome) = match self.tasks.join_next_with_id().await {
            None => return std::future::pending().await,
            Some(Ok((id, outcome))) => (id, outcome.map_err(|error| describe(error.as_ref()))),
            Some(Err(error)) => (error.id(), Err(error.to_string())),
        };
        Ended {
            task: self.names.remove(&id).unwrap_or("unnamed task"),
            outcome,
        }
    }

    /// Waits for the named tasks to end, as they were asked to.
    ///
    /// # Errors
    /// The first of them to fail, another task that ended meanwhile, or one of
    /// them that is still running at the deadline.
    pub(super) async fn ends(
        &mut self,
        expected: &[&'static str],
        deadline: Instant,
    ) -> Result<(), Ended> {
        let mut problem = Ok(());
        while let Some(late) = self.names.values().find(|name| expected.contains(name)) {
            let late = *late;
            let Ok(ended) = timeout_at(deadline, self.next()).await else {
                let outcome = Err("it did not stop in time".to_owned());
                return problem.and(Err(Ended {
                    task: late,
                    outcome,
                }));
            };
            if ended.outcome.is_err() || !expected.contains(&ended.task) {
                problem = problem.and(Err(ended));
            }
        }
        problem
    }
}

/// An error with its causes, each said once.
fn describe(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio_util::sync::CancellationToken;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    fn obedient(stop: &CancellationToken) -> impl Future<Output = Result<(), TaskError>> + use<> {
        let stop = stop.clone();
        async move {
            stop.cancelled().await;
            Ok(())
        }
    }

    #[tokio::test]
    async fn an_end_is_reported_under_the_name_of_the_task() {
        let mut tasks = Supervisor::default();
        let stop = CancellationToken::new();
        tasks.spawn("steady", obedient(&stop));
        tasks.spawn("failing", async { Err("no disk".into()) });
        let ended = tasks.next().await;
        assert_eq!(
            (ended.task, ended.outcome),
            ("failing", Err("no disk".into()))
        );
    }

    #[tokio::test]
    async fn a_panic_is_an_end_with_an_error() {
        let mut tasks = Supervisor::default();
        tasks.spawn("broken", async { panic!("out of range") });
        let ended = tasks.next().await;
        assert_eq!(ended.task, "broken");
        assert!(ended.outcome.unwrap_err().contains("panic"));
    }

    #[tokio::test]
    async fn tasks_that_stop_when_asked_are_no_problem() {
        let mut tasks = Supervisor::default();
        let stop = CancellationToken::new();
        tasks.spawn("one", obedient(&stop));
        tasks.spawn("two", obedient(&stop));
        tasks.spawn("server", std::future::pending());
        stop.cancel();
        assert_eq!(tasks.ends(&["one", "two"], soon()).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_does_not_stop_is_named() {
        let mut tasks = Supervisor::default();
        tasks.spawn("stubborn", std::future::pending());
        let late = tasks.ends(&["stubborn"], soon()).await.unwrap_err();
        assert_eq!(late.task, "stubborn");
    }

    #[tokio::test]
    async fn another_task_that_ends_meanwhile_is_a_problem() {
        let mut tasks = Supervisor::default();
        let stop = CancellationToken::new();
        tasks.spawn("one", obedient(&stop));
        tasks.spawn("server", async { Ok(()) });
        tokio::task::yield_now().await;
        stop.cancel();
        let problem = tasks.ends(&["one"], soon()).await;
        assert!(problem.is_err_and(|ended| ended.task == "server"));
    }
}
