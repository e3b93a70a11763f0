//! The person at the terminal: runs kubectl, shows the call and what came
//! back, and waits for conditions with deadlines.

use std::cell::Cell;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use belay_testenv::{KubectlOutput, Tool, Tools};
use serde_json::Value;

use super::manifests::NAMESPACE;
use super::{Place, Screen, Stop, checks};

/// How long anything may take that takes seconds.
pub(crate) const SOON: &str = "60s";
const LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// How much of an answer is shown.
#[derive(Clone, Copy)]
pub(crate) enum Show<'a> {
    /// All of it.
    All,
    /// From the first line that ends with one text to the next that ends with
    /// the other.
    Between(&'a str, &'a str),
}

/// Runs the calls of the story.
pub(crate) struct Shell<'a> {
    pub(crate) place: &'a Place,
    pub(crate) screen: &'a Screen,
    marks: Cell<u32>,
}

impl<'a> Shell<'a> {
    /// Makes the folder of the manifests.
    pub(crate) fn new(place: &'a Place, screen: &'a Screen) -> Result<Self, Stop> {
        let folder = place.folder();
        std::fs::create_dir_all(&folder).map_err(|source| Stop::file(&folder, &source))?;
        Ok(Self {
            place,
            screen,
            marks: Cell::new(0),
        })
    }

    /// Writes a manifest and shows it.
    pub(crate) fn file(&self, name: &str, text: &str) -> Result<(), Stop> {
        self.screen.call(&format!("cat {name}"));
        self.screen.quote(text);
        self.file_quietly(name, text)
    }

    /// Writes a manifest that need not be seen.
    pub(crate) fn file_quietly(&self, name: &str, text: &str) -> Result<(), Stop> {
        let path = self.place.folder().join(name);
        std::fs::write(&path, text).map_err(|source| Stop::file(&path, &source))
    }

    /// kubectl in the namespace of the story, on the screen; whatever comes
    /// of it.
    pub(crate) fn kubectl(&self, args: &[&str], show: Show<'_>) -> Result<KubectlOutput, Stop> {
        let args = within(args);
        self.screen.call(&checks::line("kubectl", &args));
        let output = self.run(&args)?;
        self.screen.quote(&shorten(&output.stdout, show));
        self.screen.quote(&shorten(&output.stderr, show));
        Ok(output)
    }

    /// The same, and it must succeed.
    pub(crate) fn must(&self, args: &[&str], show: Show<'_>) -> Result<String, Stop> {
        Ok(self.kubectl(args, show)?.ok()?)
    }

    /// A command of Belay in the namespace of the story, on the screen;
    /// whatever comes of it.
    pub(crate) fn belay(&self, args: &[&str]) -> Result<KubectlOutput, Stop> {
        let args = within(args);
        self.screen.call(&checks::line("belay", &args));
        let command = self.place.belay(&args).current_dir(&self.place.folder());
        let output = command.deadline(LIMIT + Duration::from_secs(10)).run()?;
        self.screen.quote(&output.stdout);
        self.screen.quote(&output.stderr);
        Ok(output)
    }

    /// kubectl in the namespace of the story, not on the screen.
    pub(crate) fn quiet(&self, args: &[&str]) -> Result<String, Stop> {
        Ok(self.run(&within(args))?.ok()?)
    }

    /// An object or a list as JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Result<Value, Stop> {
        let text = self.quiet(&[args, &["-o", "json"]].concat())?;
        serde_json::from_str(&text).map_err(|error| Stop::Other(format!("{args:?}: {error}")))
    }

    /// The pod template of a Deployment, byte by byte as kubectl prints it.
    pub(crate) fn template(&self, name: &str) -> Result<String, Stop> {
        self.quiet(&["get", "deployment", name, "-o", "jsonpath={.spec.template}"])
    }

    fn run(&self, args: &[&str]) -> Result<KubectlOutput, Stop> {
        let folder = self.place.folder();
        let command = self.place.kubectl(args).current_dir(&folder);
        Ok(command.deadline(LIMIT + Duration::from_secs(10)).run()?)
    }

    /// Waits until the operator has looked at the plan after this call: a
    /// change of an annotation makes it look.
    pub(crate) fn make_it_look(&self) -> Result<(), Stop> {
        let before = self.place.reconciles()?;
        self.marks.set(self.marks.get() + 1);
        let mark = format!("seen={}", self.marks.get());
        self.must(
            &["annotate", "relplan", "shop", "--overwrite", &mark],
            Show::All,
        )?;
        self.until("the operator to look at the plan", || {
            Ok(self.place.reconciles()? > before)
        })
    }

    /// Waits for something that kubectl cannot wait for.
    pub(crate) fn until(
        &self,
        what: &str,
        mut done: impl FnMut() -> Result<bool, Stop>,
    ) -> Result<(), Stop> {
        let end = Instant::now() + LIMIT;
        while !done()? {
            if Instant::now() >= end {
                return Err(Stop::Other(format!("waited {LIMIT:?} in vain for {what}")));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Begins to watch the plan as `kubectl get` shows it.
    pub(crate) fn watch(&self) -> Result<Watch, Stop> {
        let args = within(&["get", "relplan", "shop", "--watch"]);
        self.screen
            .call(&format!("{} &", checks::line("kubectl", &args)));
        // Ensured before; finds it.
        let tools = Tools::ensure_only(&[Tool::Kubectl], &belay_testenv::Silent)?;
        let mut child = Command::new(tools.path(Tool::Kubectl))
            .args(&args)
            .env("KUBECONFIG", self.place.kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| Stop::Other(format!("cannot start kubectl: {error}")))?;
        let reader = child.stdout.take().map(|pipe| {
            std::thread::spawn(move || BufReader::new(pipe).lines().map_while(Result::ok).collect())
        });
        Ok(Watch { child, reader })
    }
}

/// A `kubectl get --watch` in the background.
pub(crate) struct Watch {
    child: Child,
    reader: Option<JoinHandle<Vec<String>>>,
}

impl Watch {
    /// Ends it and answers what it printed.
    pub(crate) fn end(mut self) -> String {
        self.stop();
        let lines = self.reader.take().and_then(|reader| reader.join().ok());
        checks::without_repeats(&lines.unwrap_or_default())
    }

    fn stop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop();
    }
}

fn within<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&["-n", NAMESPACE], args].concat()
}

fn shorten(text: &str, show: Show<'_>) -> String {
    let all: Vec<&str> = text.lines().collect();
    let kept = match show {
        Show::All => return text.to_owned(),
        Show::Between(first, last) => checks::between(&all, first, last),
    };
    let left_out = all.len() - kept.len();
    let mut text = kept.join("\n");
    if left_out > 0 {
        text.push_str(&format!("\n({left_out} other lines are not shown)"));
    }
    text
}
