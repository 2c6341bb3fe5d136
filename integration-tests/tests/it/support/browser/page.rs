//! A page, as a person uses it.
use super::protocol::Protocol;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    select,
    sync::broadcast::{Receiver, error::RecvError},
    time::timeout,
};
use twinbox_testkit::servers::find;

/// The bound of every wait in a page. Pages load at once, and refresh every few seconds.
const LIMIT: Duration = Duration::from_secs(180);
/// The characters of a failed script that a panic shows. That of axe-core is long.
const SCRIPT_SHOWN: usize = 200;

pub(crate) struct Page {
    protocol: Arc<Protocol>,
    session: String,
    /// The frame of the page itself. It has the name of the target.
    frame: String,
    errors: Arc<Mutex<Vec<String>>>,
}

impl Page {
    pub(super) async fn new(protocol: Arc<Protocol>, session: String, frame: String) -> Result<Self, Value> {
        let (errors, mut events) = (Arc::<Mutex<Vec<String>>>::default(), protocol.events());
        let (kept, of) = (errors.clone(), session.clone());
        tokio::spawn(async move {
            loop {
                let event = match events.recv().await {
                    Ok(event) => event,
                    Err(RecvError::Lagged(_)) => continue,
                    Err(RecvError::Closed) => return,
                };
                if event["sessionId"].as_str() == Some(&of)
                    && let Some(error) = error_of(&event)
                {
                    kept.lock().unwrap().push(error);
                }
            }
        });
        let page = Self { protocol, session, frame, errors };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.protocol.try_call(Some(&page.session), &format!("{domain}.enable"), json!({})).await?;
        }
        Ok(page)
    }

    async fn call(&self, method: &str, params: Value) -> Value {
        self.protocol.call(Some(&self.session), method, params).await
    }

    /// Does something that loads a page, and waits until it is loaded. Returns the status of the document.
    async fn loading(&self, act: impl AsyncFnOnce()) -> u64 {
        let mut events = self.protocol.events();
        act().await;
        let (mut status, mut is_another) = (0, false);
        let loaded = async {
            loop {
                let event = self.next(&mut events).await;
                let (method, params) = (event["method"].as_str().unwrap_or_default(), &event["params"]);
                match method {
                    "Network.responseReceived"
                        if params["type"] == "Document" && params["frameId"] == self.frame =>
                    {
                        status = params["response"]["status"].as_u64().unwrap_or_default();
                    }
                    "Page.frameNavigated" if params["frame"]["id"] == self.frame => is_another = true,
                    // Not that of the page before.
                    "Page.loadEventFired" if is_another => return,
                    _ => {}
                }
            }
        };
        if timeout(LIMIT, loaded).await.is_err() {
            panic!("no page is loaded {}", self.shown().await);
        }
        status
    }

    /// The next event of this page.
    async fn next(&self, events: &mut Receiver<Arc<Value>>) -> Arc<Value> {
        loop {
            let event = events.recv().await.expect("no reader of events is far behind");
            if event["sessionId"].as_str() == Some(&self.session) {
                return event;
            }
        }
    }

    /// Says for a panic where the page is, and what it shows.
    async fn shown(&self) -> String {
        let script = "location.href + ':\\n' + document.body?.innerText";
        match timeout(LIMIT, self.try_eval(script)).await {
            Ok(Ok(shown)) => format!("at {}", shown["result"]["value"].as_str().unwrap_or_default()),
            _ => "on a page that says nothing".to_owned(),
        }
    }

    /// Opens an address. Returns the status of the document.
    pub(crate) async fn open(&self, url: &str) -> u64 {
        self.loading(async || drop(self.call("Page.navigate", json!({"url": url})).await)).await
    }

    pub(crate) async fn reload(&self) -> u64 {
        self.loading(async || drop(self.call("Page.reload", json!({})).await)).await
    }

    /// Clicks something that leads to another page.
    pub(crate) async fn follow(&self, selector: &str) -> u64 {
        self.wait_for(selector).await;
        self.loading(async || self.click(selector).await).await
    }

    /// Clicks the first link or button with this text, which leads to another page.
    pub(crate) async fn follow_text(&self, text: &str) -> u64 {
        let find = format!(
            "[...document.querySelectorAll('a,button')].find(one => one.textContent.trim() === {})",
            json!(text)
        );
        self.until(&format!("!!{find}"), text).await;
        self.loading(async || self.click_on(&find).await).await
    }

    /// Evaluates a script, and awaits its promise.
    pub(crate) async fn eval(&self, script: &str) -> Value {
        match self.try_eval(script).await {
            Ok(mut result) if result["exceptionDetails"].is_null() => result["result"]["value"].take(),
            failed => {
                let error = match &failed {
                    Ok(result) => &result["exceptionDetails"]["exception"]["description"],
                    Err(refused) => &refused["message"],
                };
                let start: String = script.chars().take(SCRIPT_SHOWN).collect();
                panic!("{start}: {error} {}", self.shown().await)
            }
        }
    }

    /// The same. Err: another page has come meanwhile.
    async fn try_eval(&self, script: &str) -> Result<Value, Value> {
        let params = json!({"expression": script, "awaitPromise": true, "returnByValue": true});
        let answer = self.protocol.try_call(Some(&self.session), "Runtime.evaluate", params).await;
        if let Err(Value::String(ended)) = &answer {
            panic!("{ended}");
        }
        answer
    }

    /// Waits until a script says true, on this page or on one that comes after it.
    async fn until(&self, script: &str, what: &str) {
        let poll = format!(
            "new Promise(done => {{ const look = () => {{ if ({script}) done(true); \
             else setTimeout(look, 150); }}; look(); }})"
        );
        let mut events = self.protocol.events();
        let found = async {
            loop {
                let look = async {
                    match self.try_eval(&poll).await {
                        Ok(result) if result["exceptionDetails"].is_null() => true,
                        Ok(result) => panic!("{what}: {}", result["exceptionDetails"]),
                        Err(_) => pending().await,
                    }
                };
                // Another page ends the look, and without scripts a look never begins anew by itself.
                let loaded = async {
                    while self.next(&mut events).await["method"] != "Page.loadEventFired" {}
                    false
                };
                if select! { found = look => found, again = loaded => again } {
                    return;
                }
            }
        };
        if timeout(LIMIT, found).await.is_err() {
            panic!("{what} does not come {}", self.shown().await);
        }
    }

    pub(crate) async fn url(&self) -> String {
        self.eval("location.href").await.as_str().unwrap().to_owned()
    }

    pub(crate) async fn wait_for(&self, selector: &str) {
        self.until(&format!("document.querySelector({})", json!(selector)), selector).await;
    }

    /// Waits until the page shows a text.
    pub(crate) async fn wait_for_text(&self, text: &str) {
        self.until(&format!("document.body?.innerText.includes({})", json!(text)), text).await;
    }

    pub(crate) async fn text(&self, selector: &str) -> String {
        let script = format!("document.querySelector({}).innerText", json!(selector));
        self.eval(&script).await.as_str().unwrap().to_owned()
    }

    pub(crate) async fn has(&self, selector: &str) -> bool {
        self.eval(&format!("!!document.querySelector({})", json!(selector))).await == true
    }

    pub(crate) async fn click(&self, selector: &str) {
        self.click_on(&format!("document.querySelector({})", json!(selector))).await;
    }

    async fn click_on(&self, find: &str) {
        let place = self
            .eval(&format!(
                "(() => {{ const one = {find}; one.scrollIntoView({{block: 'center'}}); \
                 const box = one.getClientRects()[0]; \
                 return [box.left + box.width / 2, box.top + box.height / 2]; }})()"
            ))
            .await;
        for kind in ["mousePressed", "mouseReleased"] {
            let params =
                json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", params).await;
        }
    }

    /// Writes into a field, instead of what it has.
    pub(crate) async fn fill(&self, selector: &str, text: &str) {
        self.eval(&format!(
            "(() => {{ const one = document.querySelector({}); one.focus(); one.select(); }})()",
            json!(selector)
        ))
        .await;
        self.call("Input.insertText", json!({"text": text})).await;
    }

    /// Presses `Tab` or `Enter`.
    pub(crate) async fn press(&self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            other => panic!("no code for {other}"),
        };
        for kind in ["keyDown", "keyUp"] {
            let params =
                json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
            self.call("Input.dispatchKeyEvent", params).await;
        }
    }

    /// The same for `Enter` that leads to another page.
    pub(crate) async fn press_enter(&self) -> u64 {
        self.loading(async || self.press("Enter").await).await
    }

    /// The text of what has the focus.
    pub(crate) async fn focused(&self) -> String {
        let script = "(document.activeElement.name || document.activeElement.textContent || '').trim()";
        self.eval(script).await.as_str().unwrap().to_owned()
    }

    pub(crate) async fn size(&self, width: u32, height: u32) {
        let params = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", params).await;
    }

    pub(crate) async fn dark(&self, is_dark: bool) {
        let value = if is_dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.call("Emulation.setEmulatedMedia", features).await;
    }

    pub(crate) async fn scripts(&self, run: bool) {
        self.call("Emulation.setScriptExecutionDisabled", json!({"value": !run})).await;
    }

    pub(crate) async fn zone(&self, name: &str) {
        self.call("Emulation.setTimezoneOverride", json!({"timezoneId": name})).await;
    }

    /// The whole page as a PNG.
    pub(crate) async fn screenshot(&self) -> Vec<u8> {
        let params = json!({"format": "png", "captureBeyondViewport": true});
        let shot = self.call("Page.captureScreenshot", params).await;
        BASE64_STANDARD.decode(shot["data"].as_str().unwrap()).unwrap()
    }

    /// What makes the page wider than the window. Empty: it is not.
    pub(crate) async fn wider_than_the_window(&self) -> Vec<String> {
        let script = "(() => { const root = document.documentElement; \
             if (root.scrollWidth <= root.clientWidth) return []; \
             const wide = [...document.querySelectorAll('body *')].filter(one => \
                 one.getBoundingClientRect().right > root.clientWidth + 1); \
             return wide.concat(document.body).map(one => one.outerHTML.slice(0, 200)); })()";
        let wide = self.eval(script).await;
        wide.as_array().unwrap().iter().map(ToString::to_string).collect()
    }

    /// Serious and critical findings of axe-core.
    pub(crate) async fn barriers(&self) -> Vec<String> {
        if self.eval("typeof axe").await == "undefined" {
            let file = find::node_packages().unwrap().join("node_modules/axe-core/axe.min.js");
            self.eval(&format!("{}; true", std::fs::read_to_string(file).unwrap())).await;
        }
        // All rules run. What passes them is not described.
        let run = "axe.run({resultTypes: ['violations']}).then(found => found.violations)";
        let found = self.eval(run).await;
        let found = found.as_array().unwrap().iter();
        let severe =
            found.filter(|one| ["serious", "critical"].contains(&one["impact"].as_str().unwrap_or_default()));
        let places = |one: &Value| {
            let nodes = one["nodes"].as_array().unwrap().iter();
            nodes.map(|node| format!("{} {}", node["target"], node["failureSummary"])).collect::<Vec<_>>()
        };
        severe.map(|one| format!("{}: {} ({})", one["id"], one["help"], places(one).join(", "))).collect()
    }

    /// What the browser complained about since the page was made.
    pub(crate) fn errors(&self) -> Vec<String> {
        self.errors.lock().unwrap().clone()
    }
}

/// The complaint of an event: a script that failed, or what the policy of the page forbade.
fn error_of(event: &Value) -> Option<String> {
    let params = &event["params"];
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
        "Log.entryAdded" if params["entry"]["level"] == "error" => Some(params["entry"]["text"].to_string()),
        "Runtime.consoleAPICalled" if params["type"] == "error" => Some(params["args"].to_string()),
        _ => None,
    }
}
