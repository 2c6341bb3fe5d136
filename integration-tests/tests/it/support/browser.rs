//! A headless Chromium, driven by its DevTools protocol over a pipe.
mod page;
mod protocol;

pub(crate) use page::Page;

use protocol::Protocol;
use serde_json::{Value, json};
use std::{path::Path, process::Stdio, sync::Arc, time::Duration};
use tokio::{process::Command, time::timeout};
use twinbox_testkit::{servers::find, skipped};

/// Chromium reads commands from 3 and writes to 4. It ends when nobody can send commands any more. Its files
/// are deleted after that, also when the group of the test is told to end. If the browser were killed, its
/// other processes would go on for a while, and write files.
const WITH_PIPES: &str =
    r#"trap : INT TERM; "$0" "$@" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null; rm -rf "$TMPDIR""#;

/// Chromium has been seen to start and then to answer nothing, and to end at its start on a busy machine:
/// another one is started, at the latest after this time.
const START: Duration = Duration::from_secs(90);
const STARTS_MAX: u32 = 3;

/// A browser of one test. It ends when it and its pages are dropped, or the test is killed.
pub(crate) struct Browser {
    protocol: Arc<Protocol>,
}

impl Browser {
    /// Starts a browser. None: there is none on this machine, and the test is skipped.
    pub(crate) async fn start() -> Option<Self> {
        let program = match find::chromium() {
            Ok(program) => program,
            Err(error) => {
                skipped(&format!("pages in a browser: {error}"));
                return None;
            }
        };
        for _ in 0..STARTS_MAX {
            let browser = Self::launch(&program);
            // The first page needs all of Chromium's processes.
            if let Ok(Ok(_)) = timeout(START, browser.try_page()).await {
                return Some(browser);
            }
        }
        panic!("Chromium starts and opens no page");
    }

    fn launch(program: &Path) -> Self {
        // The shell deletes it.
        let profile = tempfile::tempdir().unwrap().keep();
        let mut command = Command::new("sh");
        command.args(["-c", WITH_PIPES]).arg(program);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
        command.args(["--remote-debugging-pipe", "--no-first-run", "--disable-extensions"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
        command.args(["--disable-dev-shm-usage", "--force-color-profile=srgb", "--lang=en-GB"]);
        command.arg(format!("--user-data-dir={}", profile.display())).arg("about:blank");
        command.env("TMPDIR", profile).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let protocol = Protocol::new(child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { protocol: Arc::new(protocol) }
    }

    /// Opens a page with cookies of its own, as another person has.
    pub(crate) async fn page(&self) -> Page {
        self.try_page().await.unwrap_or_else(|refused| panic!("the browser opens no page: {refused}"))
    }

    async fn try_page(&self) -> Result<Page, Value> {
        let call = async |method, params| self.protocol.try_call(None, method, params).await;
        let context = call("Target.createBrowserContext", json!({})).await?;
        let target = json!({"url": "about:blank", "browserContextId": context["browserContextId"]});
        let target = call("Target.createTarget", target).await?["targetId"].as_str().unwrap().to_owned();
        let attach = json!({"targetId": target, "flatten": true});
        let session = call("Target.attachToTarget", attach).await?;
        Page::new(self.protocol.clone(), session["sessionId"].as_str().unwrap().to_owned(), target).await
    }
}
