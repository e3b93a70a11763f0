//! Starts, watches and ends the processes of one control plane.
//!
//! A cluster is *owned* (ends with its owner, however that ends) or *detached*
//! (goes on until [`down`]). Waiting is always for a condition, with a
//! deadline; an error names the process and shows the end of its log.

pub(crate) mod commands;
mod config;
mod detached;
mod options;
mod ready;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use commands::Commands;
use config::{Layout, State};
pub(crate) use config::{stages, write_kubeconfig, write_kubeconfig_for, write_private};
pub use detached::{down, runs};
pub use options::ClusterOptions;
pub(crate) use ready::block_on;
pub use ready::client_for;

use crate::audit::AuditLog;
use crate::error::Error;
use crate::kubectl::{KubectlCommand, KubectlOutput};
use crate::net::listens;
use crate::pki::Pki;
use crate::process::{Process, Spec, wait_until};
use crate::progress::{Progress, Terminal};
use crate::settings;
use crate::tools::{Tool, Tools};
use crate::watchdog::Watchdog;

/// How long one process may take to accept connections.
const PROCESS_START: Duration = Duration::from_secs(60);
/// How often a start is tried when ports were lost to another process.
const PORT_ATTEMPTS: usize = 3;

/// A control plane that works: the API answers, the node is ready, the
/// controllers run.
#[derive(Debug)]
pub struct Cluster {
    layout: Layout,
    state: State,
    pki: Pki,
    tools: Tools,
    audit: bool,
    kubeconfig: PathBuf,
    logs: PathBuf,
    processes: Mutex<Vec<Process>>,
    /// Absent when detached.
    watchdog: Option<Watchdog>,
}

impl Cluster {
    /// Starts a cluster and waits until it can be used, a few seconds once the
    /// binaries are there (see [`Tools::ensure`]). Needs no async runtime and
    /// may be called inside one.
    ///
    /// # Errors
    /// When a binary cannot be had, or a process does not come up; then nothing
    /// is left behind unless the cluster is detached.
    pub fn start(options: ClusterOptions) -> Result<Self, Error> {
        let tools = Tools::ensure(&Terminal)?;
        let mut attempt = 1;
        loop {
            match Self::start_once(&options, &tools) {
                Err(error) if error.is_port_taken() && attempt < PORT_ATTEMPTS => attempt += 1,
                result => return result,
            }
        }
    }

    /// The cluster that the tests of this process share: started by the first
    /// that asks, ended with the process. Tests that share it take namespaces
    /// of their own and stop none of its processes.
    ///
    /// # Errors
    /// As for [`Cluster::start`].
    pub fn shared() -> Result<Arc<Self>, Error> {
        static SHARED: Mutex<Option<Arc<Cluster>>> = Mutex::new(None);
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        match &*shared {
            Some(cluster) => Ok(Arc::clone(cluster)),
            None => {
                let cluster = Arc::new(Self::start(ClusterOptions::new())?);
                Ok(Arc::clone(shared.insert(cluster)))
            }
        }
    }

    fn start_once(options: &ClusterOptions, tools: &Tools) -> Result<Self, Error> {
        let watchdog = match options.detached {
            true => None,
            false => Some(Watchdog::start()?),
        };
        let root = match &options.dir {
            Some(dir) => {
                std::fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
                std::path::absolute(dir).map_err(Error::io("find", dir))?
            }
            None => temporary_dir(watchdog.as_ref())?,
        };
        let layout = Layout::new(&root);
        layout.make_dirs()?;
        let (state, new) = State::ensure(&layout)?;
        let pki = Pki::ensure(&layout.data().join("pki"))?;
        config::write_files(&layout, &state, &pki.ca)?;
        let cluster = Self {
            kubeconfig: layout.kubeconfig(),
            logs: layout.logs(),
            layout,
            state,
            pki,
            tools: tools.clone(),
            audit: options.audit,
            processes: Mutex::new(Vec::new()),
            watchdog,
        };
        let result = cluster.bring_up();
        if result.as_ref().is_err_and(Error::is_port_taken) && new {
            // The next attempt must choose other ports.
            cluster.end_all();
            std::fs::remove_dir_all(cluster.layout.data())
                .map_err(Error::io("remove", cluster.layout.data()))?;
        }
        result.map(|()| cluster)
    }

    fn bring_up(&self) -> Result<(), Error> {
        self.start_tool(Tool::Etcd)?;
        self.wait_listening(self.state.etcd, "etcd")?;
        self.start_tool(Tool::ApiServer)?;
        self.wait_listening(self.state.api, "kube-apiserver")?;
        // kube-controller-manager gives up after 10 s, and an API server on a
        // busy machine may need more.
        block_on(|| ready::healthy(&self.kubeconfig, || self.check()))?;
        for tool in [Tool::ControllerManager, Tool::Scheduler, Tool::Kwok] {
            self.start_tool(tool)?;
        }
        block_on(|| ready::usable(&self.kubeconfig, || self.check()))?;
        self.wait_listening(self.state.scheduler, "kube-scheduler")
    }

    fn start_tool(&self, tool: Tool) -> Result<(), Error> {
        let commands = Commands {
            layout: &self.layout,
            state: &self.state,
            pki: &self.pki,
            tools: &self.tools,
            audit: self.audit,
        };
        match commands.spec(tool) {
            Some(spec) => self.run(&spec),
            None => Ok(()),
        }
    }

    /// Starts a process that belongs to this cluster, unless an earlier run
    /// started it and it is still there.
    pub(crate) fn run(&self, spec: &Spec) -> Result<(), Error> {
        let mut processes = self.processes();
        if processes
            .iter_mut()
            .any(|known| known.name() == spec.name && known.exited().is_none())
        {
            return Ok(());
        }
        processes.retain(|known| known.name() != spec.name);
        let process = match self.adopt(&spec.name) {
            Some(process) => process,
            None => Process::spawn(spec, &self.mark())?,
        };
        if let Some(watchdog) = &self.watchdog {
            watchdog.add(process.pid());
        }
        let pid = process.pid().to_string();
        let pid_file = self.layout.pid_file(&spec.name);
        processes.push(process);
        config::write(&pid_file, &pid)
    }

    /// Takes over what an earlier run started under this name.
    pub(crate) fn adopt(&self, name: &str) -> Option<Process> {
        detached::adopt(&self.layout, name)
    }

    pub(crate) const fn is_detached(&self) -> bool {
        self.watchdog.is_none()
    }

    /// Stands in the command line of every process of this cluster.
    fn mark(&self) -> String {
        detached::mark(&self.layout)
    }

    pub(crate) fn with_process<T>(
        &self,
        name: &str,
        act: impl FnOnce(&mut Process) -> T,
    ) -> Result<T, Error> {
        let mut processes = self.processes();
        if let Some(process) = processes.iter_mut().find(|process| process.name() == name) {
            return Ok(act(process));
        }
        let known: Vec<&str> = processes.iter().map(Process::name).collect();
        Err(Error::UnknownProcess {
            name: name.to_owned(),
            known: known.join(", "),
        })
    }

    /// Forgets a process that has ended.
    pub(crate) fn forget(&self, name: &str) {
        self.processes().retain(|process| {
            let gone = process.name() == name;
            if gone && let Some(watchdog) = &self.watchdog {
                watchdog.remove(process.pid());
            }
            !gone
        });
        // Absent already when the folder is going away.
        let _ = std::fs::remove_file(self.layout.pid_file(name));
    }

    fn processes(&self) -> MutexGuard<'_, Vec<Process>> {
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// An error if a process has ended that nobody stopped.
    ///
    /// # Errors
    /// Names the process and shows the end of its log.
    pub fn check(&self) -> Result<(), Error> {
        self.processes().iter_mut().try_for_each(Process::check)
    }

    fn wait_listening(&self, port: u16, name: &str) -> Result<(), Error> {
        wait_until(
            &format!("{name} accepting connections"),
            PROCESS_START,
            || {
                self.check()?;
                Ok(listens(port))
            },
        )
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The folder of the cluster.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.layout.root
    }

    /// The folder with one log for each process, and `audit.log`.
    #[must_use]
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// The binaries in use.
    #[must_use]
    pub const fn tools(&self) -> &Tools {
        &self.tools
    }

    /// The API server's URL.
    #[must_use]
    pub fn server(&self) -> String {
        self.state.server()
    }

    /// The PEM of the authority that signed the API server's certificate.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn ca_pem(&self) -> Result<String, Error> {
        std::fs::read_to_string(&self.pki.ca).map_err(Error::io("read", &self.pki.ca))
    }

    /// The audit log. Empty unless the cluster was started with one.
    #[must_use]
    pub fn audit(&self) -> AuditLog {
        AuditLog::new(&self.layout.audit_log())
    }

    /// Waits until every request answered before this call is in the audit
    /// log. To be called before concluding that something was *not* asked for.
    ///
    /// # Errors
    /// When the API server does not answer or does not write its log.
    pub fn settle_audit(&self) -> Result<(), Error> {
        let log = self.audit().from_here();
        let marker = format!("audit-marker-{}", crate::net::free_port()?);
        block_on(|| ready::ask_for_nothing(&self.kubeconfig, &marker))?;
        wait_until("the audit log catching up", Duration::from_secs(10), || {
            Ok(log.entries()?.iter().any(|entry| entry.name == marker))
        })
    }

    /// A client of the administrator. It belongs to the runtime it is made in
    /// (each `#[tokio::test]` has its own) and does not retry by itself.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn client(&self) -> Result<kube::Client, Error> {
        client_for(&self.kubeconfig).await
    }

    /// Runs kubectl as administrator, for at most 60 s.
    ///
    /// # Errors
    /// When it cannot be started or does not end in time. A kubectl that says
    /// no is an answer: see [`KubectlOutput::ok`].
    pub fn kubectl(&self, args: &[&str]) -> Result<KubectlOutput, Error> {
        self.kubectl_command(args).run()
    }

    /// Runs kubectl as administrator with this standard input.
    ///
    /// # Errors
    /// As for [`Cluster::kubectl`].
    pub fn kubectl_stdin(
        &self,
        args: &[&str],
        stdin: impl Into<String>,
    ) -> Result<KubectlOutput, Error> {
        self.kubectl_command(args).stdin(stdin).run()
    }

    /// A kubectl call as administrator, to be refined before it runs.
    #[must_use]
    pub fn kubectl_command(&self, args: &[&str]) -> KubectlCommand {
        KubectlCommand::new(self.tools.path(Tool::Kubectl), &self.kubeconfig, args)
    }

    /// The pid of a process, for example of `kube-apiserver`.
    ///
    /// # Errors
    /// When there is no process of that name.
    pub fn pid(&self, name: &str) -> Result<u32, Error> {
        self.with_process(name, |process| process.pid())
    }

    /// Kills a process of the control plane.
    ///
    /// # Errors
    /// When there is no process of that name.
    pub fn stop_process(&self, name: &str) -> Result<(), Error> {
        self.with_process(name, Process::kill)?;
        self.forget(name);
        Ok(())
    }

    /// Starts a process of the control plane that was stopped, and waits until
    /// the cluster can be used again.
    ///
    /// # Errors
    /// When there is no such process, or it does not come up.
    pub fn start_process(&self, name: &str) -> Result<(), Error> {
        let tool = Tool::ALL
            .into_iter()
            .find(|tool| tool.binary() == name && *tool != Tool::Kubectl)
            .ok_or_else(|| Error::UnknownProcess {
                name: name.to_owned(),
                known: Tool::ALL.map(Tool::binary).join(", "),
            })?;
        self.start_tool(tool)?;
        match tool {
            Tool::Etcd => self.wait_listening(self.state.etcd, name)?,
            Tool::Scheduler => self.wait_listening(self.state.scheduler, name)?,
            Tool::ApiServer | Tool::ControllerManager | Tool::Kubectl | Tool::Kwok => {}
        }
        block_on(|| ready::usable(&self.kubeconfig, || self.check()))
    }

    /// Kills a process and starts it again.
    ///
    /// # Errors
    /// When there is no such process, or it does not come up.
    pub fn restart_process(&self, name: &str) -> Result<(), Error> {
        self.stop_process(name)?;
        self.start_process(name)
    }

    fn end_all(&self) {
        let mut processes = self.processes();
        for process in processes.iter_mut() {
            process.signal(rustix::process::Signal::KILL);
        }
        for mut process in processes.drain(..) {
            process.kill();
            if let Some(watchdog) = &self.watchdog {
                watchdog.remove(process.pid());
            }
            let _ = std::fs::remove_file(self.layout.pid_file(process.name()));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.watchdog.is_some() {
            self.end_all();
        }
    }
}

/// A folder that the watchdog removes at the end, unless it is to be kept.
fn temporary_dir(watchdog: Option<&Watchdog>) -> Result<PathBuf, Error> {
    let parent = std::env::temp_dir();
    let dir = tempfile::Builder::new()
        .prefix("belay-cluster-")
        .tempdir()
        .map_err(Error::io("create a folder in", parent))?
        .keep();
    if settings::keep() {
        Terminal.line(&format!("keeping the cluster's folder {}", dir.display()));
    } else if let Some(watchdog) = watchdog {
        watchdog.remove_dir_at_end(&dir);
    }
    Ok(dir)
}
