//! The commands for people, run as people run them.

use std::{
    ffi::OsString,
    io::{Read as _, Write as _},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use belay_testenv::Tool;

use crate::support::Scene;

/// Longest that a command may take that does not wait for anything.
const LIMIT: Duration = Duration::from_secs(120);

/// What a command said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    /// The last line of the output.
    pub fn last(&self) -> &str {
        self.stdout.lines().last().unwrap_or_default()
    }

    /// Checks the exit code.
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }
}

/// A folder with the program under all of its names, and kubectl.
pub fn bin(scene: &Scene) -> PathBuf {
    let dir = scene.cluster.dir().join(format!("bin-{}", scene.namespace));
    if !dir.exists() {
        std::fs::create_dir(&dir).unwrap();
        for name in ["belay", "kubectl-belay", "kubectl_complete-belay"] {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_belay"), dir.join(name)).unwrap();
        }
        let kubectl = scene.cluster.tools().path(Tool::Kubectl);
        std::os::unix::fs::symlink(kubectl, dir.join("kubectl")).unwrap();
    }
    dir
}

/// A program of [`bin`], in the environment of a person on this cluster.
pub fn command(scene: &Scene, program: &str) -> Command {
    let dir = bin(scene);
    let mut path = OsString::from(&dir);
    if let Some(rest) = std::env::var_os("PATH") {
        path.push(":");
        path.push(rest);
    }
    let mut command = Command::new(dir.join(program));
    command
        .env("PATH", path)
        .env("KUBECONFIG", scene.cluster.kubeconfig())
        .env("KUBECACHEDIR", dir.join("cache"))
        .env_remove("COMPLETE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Starts `belay` in the scene's namespace.
pub fn start(scene: &Scene, args: &[&str]) -> Child {
    command(scene, "belay")
        .args(args)
        .args(["-n", &scene.namespace])
        .spawn()
        .unwrap()
}

/// Waits for a command's end.
pub async fn end(mut child: Child, stdin: Option<String>) -> Said {
    tokio::task::spawn_blocking(move || {
        let mut input = child.stdin.take().unwrap();
        if let Some(text) = stdin {
            input.write_all(text.as_bytes()).unwrap();
        }
        drop(input);
        let mut out = child.stdout.take().unwrap();
        let mut err = child.stderr.take().unwrap();
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            err.read_to_string(&mut text).unwrap();
            text
        });
        let output = std::thread::spawn(move || {
            let mut text = String::new();
            out.read_to_string(&mut text).unwrap();
            text
        });
        let status = finished(&mut child);
        Said {
            code: status.code(),
            stdout: output.join().unwrap(),
            stderr: errors.join().unwrap(),
        }
    })
    .await
    .unwrap()
}

fn finished(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("the command did not end within {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs `belay` in the scene's namespace.
pub async fn belay(scene: &Scene, args: &[&str]) -> Said {
    end(start(scene, args), None).await
}

/// Runs `belay` with a file on its standard input.
pub async fn belay_stdin(scene: &Scene, args: &[&str], stdin: String) -> Said {
    end(start(scene, args), Some(stdin)).await
}

/// Gives a user rights on plans of the scene's namespace, and no others.
pub async fn allow(scene: &Scene, user: &str, verbs: &str) {
    scene
        .apply(&format!(
            "apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: {user}}}
rules:
- {{apiGroups: [belay.dev], resources: [releaseplans], verbs: [{verbs}]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: {user}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {user}}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {user}}}]
"
        ))
        .await;
}
