//! `belay status --watch` on a terminal.

use std::{
    fs::{File, OpenOptions},
    io::Read as _,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use crate::{
    cli::command,
    support::{SOON, Scene, plan},
};

/// A terminal with a command on it.
struct Terminal {
    child: Child,
    screen: File,
    written: Arc<Mutex<String>>,
}

impl Terminal {
    fn run(scene: &Scene, args: &[&str], size: (u16, u16)) -> Self {
        let pty = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&pty).unwrap();
        unlockpt(&pty).unwrap();
        let name = ptsname(&pty, Vec::new()).unwrap().into_string().unwrap();
        let screen = OpenOptions::new()
            .read(true)
            .write(true)
            .open(name)
            .unwrap();
        resize(&screen, size);
        let child = command(scene, "belay")
            .args(args)
            .args(["-n", &scene.namespace])
            .stdin(Stdio::null())
            .stdout(screen.try_clone().unwrap())
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .spawn()
            .unwrap();
        let written = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&written);
        std::thread::spawn(move || {
            let mut pty = File::from(pty);
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = pty.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                kept.lock().unwrap().push_str(&text);
            }
        });
        Self {
            child,
            screen,
            written,
        }
    }

    /// Waits until something was written behind a place, and says where it ends.
    async fn shows(&self, behind: usize, what: &str) -> usize {
        let deadline = Instant::now() + SOON;
        loop {
            let text = self.written.lock().unwrap().clone();
            let rest = text.get(behind..).unwrap_or_default();
            if let Some(at) = rest.find(what) {
                return behind + at + what.len();
            }
            assert!(Instant::now() < deadline, "no {what:?} in {rest:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn resize(screen: &File, (columns, rows): (u16, u16)) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(screen, size).unwrap();
}

async fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let args = [name.to_owned(), pid];
    let sent = tokio::task::spawn_blocking(move || Command::new("kill").args(args).status());
    assert!(sent.await.unwrap().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_screen_is_kept_up_to_date_and_left_as_it_was_found() {
    let scene = Scene::new("status-screen").await;
    scene.deployment("web", "shop/web:1", 1).await;
    scene
        .apply(&plan("shop", &[("web", "shop/web:1")], ""))
        .await;
    scene.ready("shop").await;
    let mut terminal = Terminal::run(&scene, &["status", "shop", "-w"], (80, 24));
    let at = terminal.shows(0, "\u{1b}[?1049h").await;
    let at = terminal.shows(at, "Released and healthy").await;
    let at = terminal.shows(at, "COMPONENT").await;

    scene
        .apply(&plan("shop", &[("web", "shop/web:2-pullerror")], ""))
        .await;
    let at = terminal.shows(at, "Releasing").await;
    let at = terminal.shows(at, "ImagePullBackOff").await;
    let at = terminal.shows(at, "Rolled back").await;

    // On a screen of three lines the top is what is left, and how much is not.
    resize(&terminal.screen, (60, 3));
    signal(&terminal.child, "-WINCH").await;
    let at = terminal.shows(at, "more lines").await;
    let text = terminal.written.lock().unwrap().clone();
    let begin = text[..at].rfind("\u{1b}[?2026h").unwrap();
    let frame = &text[begin..at];
    assert!(frame.contains("Rolled back"), "{frame:?}");
    assert_eq!(frame.matches("\r\n").count(), 2, "{frame:?}");

    signal(&terminal.child, "-INT").await;
    let at = terminal.shows(at, "\u{1b}[?25h\u{1b}[?1049l").await;
    // What was seen last stays.
    terminal.shows(at, "Rolled back").await;
    let code = tokio::task::spawn_blocking(move || terminal.child.wait().unwrap().code());
    assert_eq!(code.await.unwrap(), Some(130));
}

/// Nobody may be told that there are no plans where nobody answered.
#[tokio::test(flavor = "multi_thread")]
async fn without_an_api_server_the_screen_says_that_it_waits() {
    let scene = Scene::new("status-away").await;
    let text = std::fs::read_to_string(scene.cluster.kubeconfig()).unwrap();
    let (_, server) = text.split_once("https://").unwrap();
    let end = server.find(|c: char| c == '"' || c.is_whitespace());
    let server = &server[..end.unwrap()];
    let file = std::env::temp_dir().join(format!("belay-away-{}", std::process::id()));
    std::fs::write(&file, text.replace(server, "127.0.0.1:1")).unwrap();
    let path = file.to_str().unwrap();
    let args = ["status", "-w", "--kubeconfig", path];
    let mut terminal = Terminal::run(&scene, &args, (120, 24));
    let at = terminal.shows(0, "waiting for the API server").await;
    let at = terminal.shows(at, "releaseplans are not known yet").await;
    signal(&terminal.child, "-INT").await;
    terminal.shows(at, "\u{1b}[?1049l").await;
    let text = terminal.written.lock().unwrap().clone();
    std::fs::remove_file(&file).unwrap();
    assert!(!text.contains("no plans"), "{text:?}");
    let code = tokio::task::spawn_blocking(move || terminal.child.wait().unwrap().code());
    assert_eq!(code.await.unwrap(), Some(130));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_colours_the_screen_says_the_same() {
    let scene = Scene::new("status-colours").await;
    scene.deployment("web", "shop/web:1", 1).await;
    scene
        .apply(&plan("shop", &[("web", "shop/web:1")], ""))
        .await;
    scene.ready("shop").await;
    let mut terminal = Terminal::run(&scene, &["status", "-w", "--color", "never"], (80, 24));
    let at = terminal.shows(0, "✓ shop").await;
    signal(&terminal.child, "-TERM").await;
    terminal.shows(at, "\u{1b}[?1049l").await;
    let text = terminal.written.lock().unwrap().clone();
    assert!(
        text.contains("Released") && !text.contains("\u{1b}[32m"),
        "{text:?}"
    );
    let code = tokio::task::spawn_blocking(move || terminal.child.wait().unwrap().code());
    assert_eq!(code.await.unwrap(), Some(130));
}
