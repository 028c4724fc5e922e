//! One page of the browser.

use std::path::Path;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Browser;

/// A page. It records its requests and complaints.
pub struct Page<'b> {
    browser: &'b mut Browser,
    session: String,
}

impl<'b> Page<'b> {
    pub(super) fn new(browser: &'b mut Browser) -> Result<Self> {
        let target =
            browser.call("Target.createTarget", &json!({"url": "about:blank"}), None)?["targetId"].take();
        let attach = json!({"targetId": target, "flatten": true});
        let session = browser.call("Target.attachToTarget", &attach, None)?["sessionId"].take();
        let mut page = Self {
            browser,
            session: session.as_str().unwrap_or_default().to_owned(),
        };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.call(&format!("{domain}.enable"), &json!({}))?;
        }
        page.resize(1280, 900)?;
        Ok(page)
    }

    /// Sets the size of the page's window in pixels.
    pub fn resize(&mut self, width: u32, height: u32) -> Result<()> {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", &size).map(drop)
    }

    /// Opens a file and waits until it is loaded.
    pub fn open(&mut self, file: &Path) -> Result<()> {
        let file = file
            .canonicalize()
            .with_context(|| format!("cannot open {}", file.display()))?;
        self.open_url(&format!("file://{}", file.display()))
    }

    /// Opens a URL and waits until it is loaded.
    pub fn open_url(&mut self, url: &str) -> Result<()> {
        let answer = self.call("Page.navigate", &json!({"url": url}))?;
        match answer["errorText"].as_str() {
            Some(error) => bail!("cannot open {url}: {error}"),
            None => self.browser.wait_for("Page.loadEventFired", &self.session),
        }
    }

    /// Enables or disables the scripts of pages that are opened from now on.
    pub fn scripts(&mut self, run: bool) -> Result<()> {
        self.call("Emulation.setScriptExecutionDisabled", &json!({"value": !run}))
            .map(drop)
    }

    /// Sets the preferred color scheme, `light` or `dark`, and the medium, `screen` or `print`.
    pub fn appearance(&mut self, scheme: &str, medium: &str) -> Result<()> {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.call(
            "Emulation.setEmulatedMedia",
            &json!({"media": medium, "features": [feature]}),
        )
        .map(drop)
    }

    /// Evaluates a JavaScript expression, and returns its value as JSON.
    pub fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.call("Runtime.evaluate", &parameters)?;
        match answer.get("exceptionDetails") {
            None => Ok(answer["result"]["value"].take()),
            Some(details) => bail!("{expression}: {details}"),
        }
    }

    /// Clicks the center of the element that an expression returns.
    pub fn click(&mut self, element: &str) -> Result<()> {
        self.click_at(element, 0.5, 0.5)
    }

    /// Clicks an element at these fractions of its width and height.
    pub fn click_at(&mut self, element: &str, x: f64, y: f64) -> Result<()> {
        let place = self.evaluate(&format!(
            "(() => {{ const element = {element}; element.scrollIntoView({{block: 'center'}}); \
             const box = element.getBoundingClientRect(); \
             return [box.left + box.width * {x}, box.top + box.height * {y}]; }})()"
        ))?;
        for kind in ["mousePressed", "mouseReleased"] {
            let event =
                json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", &event)?;
        }
        Ok(())
    }

    /// Presses a key, such as `Enter` or `ArrowDown`.
    pub fn press(&mut self, key: &str) -> Result<()> {
        for kind in ["rawKeyDown", "keyUp"] {
            let code = match key {
                "Enter" => 13,
                "Tab" => 9,
                "ArrowLeft" => 37,
                "ArrowUp" => 38,
                "ArrowRight" => 39,
                "ArrowDown" => 40,
                _ => 0,
            };
            let event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
            self.call("Input.dispatchKeyEvent", &event)?;
        }
        Ok(())
    }

    /// Types text into the focused element.
    pub fn type_text(&mut self, text: &str) -> Result<()> {
        self.call("Input.insertText", &json!({"text": text})).map(drop)
    }

    /// Takes a picture of a part of the page as PNG. `clip` is the left edge, the top edge, the width and the height in
    /// pixels.
    pub fn screenshot_of(&mut self, clip: [f64; 4]) -> Result<Vec<u8>> {
        let [x, y, width, height] = clip;
        let clip = json!({"x": x, "y": y, "width": width, "height": height, "scale": 1});
        let parameters = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        self.bytes("Page.captureScreenshot", &parameters)
    }

    /// Prints the page to a PDF document.
    pub fn pdf(&mut self) -> Result<Vec<u8>> {
        self.bytes("Page.printToPDF", &json!({"printBackground": true}))
    }

    /// The URLs of all requests of the page, oldest first, including the page itself.
    pub fn requests(&mut self) -> Result<Vec<String>> {
        self.catch_up()?;
        let requests = self.browser.events(&["Network.requestWillBeSent"], &self.session);
        Ok(requests
            .map(|event| event["request"]["url"].as_str().unwrap_or_default().to_owned())
            .collect())
    }

    /// Returns the errors and warnings of the page's scripts, of its console and of the browser.
    pub fn complaints(&mut self) -> Result<Vec<String>> {
        self.catch_up()?;
        let names = [
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
            "Log.entryAdded",
        ];
        let bad = |event: &&Value| {
            let kind = event["type"].as_str().or(event["entry"]["level"].as_str());
            matches!(kind, None | Some("error" | "warning" | "assert"))
        };
        Ok(self
            .browser
            .events(&names, &self.session)
            .filter(bad)
            .map(Value::to_string)
            .collect())
    }

    /// Waits until all earlier events have arrived. They precede the answer to the request that this function sends.
    fn catch_up(&mut self) -> Result<()> {
        self.evaluate("1").map(drop)
    }

    fn bytes(&mut self, method: &str, parameters: &Value) -> Result<Vec<u8>> {
        let answer = self.call(method, parameters)?;
        let text = answer["data"].as_str().unwrap_or_default();
        STANDARD.decode(text).with_context(|| method.to_owned())
    }

    fn call(&mut self, method: &str, parameters: &Value) -> Result<Value> {
        self.browser.call(method, parameters, Some(&self.session))
    }
}
