//! The cluster starts, works and ends; what it promises about its processes
//! and its log is true.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should say why"
)]

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use belay_testenv::{
    AuditFilter, Cluster, ClusterOptions, Error, Operator, OperatorOptions, down, is_alive,
};

const PROCESSES: [&str; 5] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
];

fn pids(dir: &Path) -> Vec<u32> {
    PROCESSES
        .iter()
        .map(|name| {
            let text = std::fs::read_to_string(dir.join("pids").join(name)).expect("a pid file");
            text.parse().expect("a pid")
        })
        .collect()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_cluster_works_tells_who_wrote_what_and_leaves_nothing() {
    let cluster = Arc::new(Cluster::start(ClusterOptions::new()).expect("a cluster"));
    let dir = cluster.dir().to_owned();
    let pids = pids(&dir);
    assert!(pids.iter().all(|pid| is_alive(*pid)));

    the_audit_log_tells_who_wrote_what(&cluster);
    a_process_can_be_stopped_and_started(&cluster);
    an_operator_that_ends_is_reported_with_its_log(&cluster);

    drop(cluster);
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "processes stay");
    if std::env::var_os("BELAY_KEEP").is_none() {
        assert!(!dir.exists(), "{} stays", dir.display());
    }
}

fn the_audit_log_tells_who_wrote_what(cluster: &Cluster) {
    let log = cluster.audit().from_here();
    let manifest = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "seen"}, "data": {"a": "b"}}"#;
    let apply = |args: &[&str]| {
        let output = cluster.kubectl_stdin(args, manifest).expect("kubectl");
        output.ok().expect("applied");
    };
    apply(&["create", "--dry-run=server", "-f", "-"]);
    apply(&["create", "-f", "-"]);
    let refused = cluster
        .kubectl_stdin(&["create", "-f", "-"], manifest)
        .expect("kubectl");
    assert!(!refused.success() && refused.stderr.contains("already exists"));
    cluster.settle_audit().expect("a settled log");

    let creates = AuditFilter::new()
        .user("admin")
        .verbs(["create"])
        .resource("configmaps")
        .namespace("default")
        .name("seen");
    let seen = log.matching(&creates).expect("entries");
    let told: Vec<_> = seen
        .iter()
        .map(|entry| (entry.dry_run, entry.code, entry.wrote()))
        .collect();
    assert_eq!(
        told,
        [(true, 201, false), (false, 201, true), (false, 409, false)]
    );
    assert_eq!(
        seen[1].request_object.as_ref().expect("a body")["data"]["a"],
        "b"
    );
    let by_others = log
        .matching(
            &AuditFilter::new()
                .resource("configmaps")
                .name("seen")
                .writes(),
        )
        .expect("entries");
    assert_eq!(by_others.len(), 1);
}

fn a_process_can_be_stopped_and_started(cluster: &Cluster) {
    let before = cluster.pid("kwok").expect("a pid");
    cluster.stop_process("kwok").expect("stopped");
    assert!(!is_alive(before));
    assert!(matches!(
        cluster.pid("kwok"),
        Err(Error::UnknownProcess { .. })
    ));
    cluster.start_process("kwok").expect("started");
    assert_ne!(cluster.pid("kwok").expect("a pid"), before);
}

fn an_operator_that_ends_is_reported_with_its_log(cluster: &Arc<Cluster>) {
    let manifests = manifests();
    let script = manifests.path().join("operator");
    std::fs::write(&script, "#!/bin/sh\necho \"no such flag: $1\"\nexit 3\n").expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("executable");
    let options = OperatorOptions::new(&script).manifests(manifests.path());
    let error = Operator::start(cluster, &options).expect_err("it ended");
    let text = error.to_string();
    assert!(
        text.contains("operator ended unexpectedly (exit status: 3)")
            && text.contains("no such flag: run"),
        "{text}"
    );
    let kubeconfig = cluster.dir().join("data/operator.kubeconfig");
    let who = cluster
        .kubectl(&[
            "auth",
            "whoami",
            "-o",
            "jsonpath={.status.userInfo.username}",
            "--kubeconfig",
            &kubeconfig.display().to_string(),
        ])
        .expect("kubectl")
        .ok()
        .expect("an identity");
    assert_eq!(who, "system:serviceaccount:belay-system:belay");
}

/// The least that an operator is installed from.
fn manifests() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path: PathBuf = dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, text).expect("written");
    };
    write(
        "crds/releaseplans.belay.dev.yaml",
        "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: releaseplans.belay.dev}, \
         spec: {group: belay.dev, scope: Namespaced, names: {plural: releaseplans, kind: ReleasePlan}, \
         versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}",
    );
    write(
        "deploy/namespace.yaml",
        "{apiVersion: v1, kind: Namespace, metadata: {name: belay-system}}",
    );
    write(
        "deploy/serviceaccount.yaml",
        "{apiVersion: v1, kind: ServiceAccount, metadata: {name: belay, namespace: belay-system}}",
    );
    write(
        "deploy/rbac.yaml",
        "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: belay}, rules: []}",
    );
    write(
        "deploy/webhooks.yaml",
        "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: belay}, webhooks: []}",
    );
    dir
}

#[test]
fn a_killed_owner_leaves_no_process_and_no_folder() {
    let mut owner = Command::new(std::env::current_exe().expect("this program"))
        .args([
            "--exact",
            "owns_a_cluster_until_killed",
            "--ignored",
            "--nocapture",
        ])
        .env_remove("BELAY_KEEP")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("an owner");
    let stdout = BufReader::new(owner.stdout.take().expect("its output"));
    let dir = stdout
        .lines()
        .map_while(Result::ok)
        .find_map(|line| {
            line.split_once("cluster in ")
                .map(|(_, dir)| PathBuf::from(dir))
        })
        .expect("the owner says where its cluster is");
    let pids = pids(&dir);
    assert!(pids.iter().all(|pid| is_alive(*pid)));

    owner.kill().expect("killed");
    owner.wait().expect("collected");
    wait_until("all processes gone", || {
        pids.iter().all(|pid| !is_alive(*pid))
    });
    wait_until("the folder gone", || !dir.exists());
}

/// Not a test: the owner that the test above kills.
#[test]
#[ignore = "the process that another test kills"]
fn owns_a_cluster_until_killed() {
    let cluster = Cluster::start(ClusterOptions::new()).expect("a cluster");
    println!("cluster in {}", cluster.dir().display());
    let _ = std::io::stdin().read(&mut [0]);
}

/// Ends a detached cluster also when the test fails.
struct Down<'a>(&'a Path);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        let _ = down(self.0);
    }
}

#[test]
fn a_detached_cluster_goes_on_is_completed_and_ends_when_told() {
    let parent = tempfile::tempdir().expect("a folder");
    let dir = parent.path().join("cluster");
    let _down = Down(&dir);
    let options = ClusterOptions::new().dir(&dir).detached(true);
    drop(Cluster::start(options.clone()).expect("a cluster"));
    let first = pids(&dir);
    assert!(first.iter().all(|pid| is_alive(*pid)), "it should go on");

    let killed = first[4].to_string();
    let status = Command::new("/bin/sh")
        .args(["-c", "kill -9 \"$0\"", &killed])
        .status()
        .expect("kill");
    assert!(status.success());
    wait_until("kwok gone", || !is_alive(first[4]));
    drop(Cluster::start(options).expect("the same cluster"));
    let second = pids(&dir);
    assert_eq!(first[..4], second[..4], "what runs is left alone");
    assert!(is_alive(second[4]), "what is missing is started");

    let ended = down(&dir).expect("down");
    assert_eq!(ended.len(), PROCESSES.len(), "{ended:?}");
    assert!(second.iter().all(|pid| !is_alive(*pid)), "processes stay");
    assert!(dir.join("logs/kube-apiserver.log").exists(), "logs stay");
    assert_eq!(down(&dir).expect("down again"), Vec::<String>::new());
}
