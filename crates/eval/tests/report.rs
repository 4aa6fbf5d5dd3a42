//! The page as a browser has it, where one is installed: `make test` installs no desktop application, and says that this was not
//! run; `make test-report` installs one. Not libtest's, which cannot say so: with `--ignored`, having none is a failure.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const NAME: &str = "a_browser_shows_all_of_the_page_and_asks_nobody_for_anything";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| words.iter().any(|given| given == word);
    let filter = words.iter().find(|word| !word.starts_with('-'));
    if has("--list") {
        println!("{NAME}: test");
        return ExitCode::SUCCESS;
    }
    if filter.is_some_and(|filter| !NAME.contains(filter.as_str())) {
        return ExitCode::SUCCESS;
    }
    match (browser(), has("--ignored")) {
        (Some(browser), _) => {
            println!("test {NAME} ({browser}) ...");
            a_browser_shows_all_of_the_page_and_asks_nobody_for_anything(browser);
            println!("ok");
            ExitCode::SUCCESS
        }
        (None, is_required) => {
            let known = BROWSERS.join(", ");
            eprintln!(
                "test {NAME} ... NOT RUN: no browser ({known}); `make test-report` installs chromium"
            );
            match is_required {
                true => ExitCode::FAILURE,
                false => ExitCode::SUCCESS,
            }
        }
    }
}

/// A directory of this test alone, gone afterwards.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("prepage-report-{}", std::process::id()));
        fs::create_dir_all(&path).expect("make a directory");
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A record's lines in a file.
fn record(place: &Place, name: &str, lines: &[serde_json::Value]) -> String {
    let path = place.0.join(name);
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    fs::write(&path, lines.join("\n") + "\n").expect("write a record");
    path.to_string_lossy().into_owned()
}

/// A machine as the first line of a record has it.
fn machine() -> serde_json::Value {
    serde_json::json!({
        "kernel": "6.18", "cpu_model": "Some <processor>", "cores": 2, "memory_bytes": 1 << 30, "page_bytes": 4096,
        "memory_cgroup": "v2", "swap": [], "disk": {}, "settings": {}
    })
}

/// Switches to two applications, six of each mode.
fn switches() -> Vec<serde_json::Value> {
    let modes = [("resident", 100), ("off", 400), ("full", 200)];
    let names = modes.map(|(mode, _)| mode);
    let mut lines = vec![serde_json::json!({
        "kind": "run", "format": 1, "time_unix_s": 1_795_395_835, "machine": machine(), "versions": {},
        "parameters": {
            "apps": ["chromium", "gimp"], "setting": "reclaimed", "modes": names, "samples": 6, "seed": 1, "warmup": 0,
            "limit_bytes": null, "hog_mib": null, "strangers_percent_max": 10.0, "quiet_ms": 700, "cap_ms": 6000,
            "prepage_config": null
        }
    })];
    for app in ["chromium", "gimp"] {
        for block in 0..6 {
            for (mode, ms) in modes {
                lines.push(switch(app, block, mode, (ms + block) * 1_000_000));
                lines.push(stalls(app, block, mode));
            }
        }
    }
    lines
}

/// One in which the longest single waits were measured, which is no sample.
fn stalls(app: &str, block: u64, mode: &str) -> serde_json::Value {
    let mut stalls = switch(app, (1 << 15) + block, mode, 5_000_000_000);
    stalls["kind"] = "stalls".into();
    stalls["longest"] = serde_json::json!({
        "fault_ns": (4 + block) * 1_000_000, "faults": 900, "call_ns": 700_000, "call": "munmap", "calls": 30, "lost": 0
    });
    stalls
}

fn switch(app: &str, block: u64, mode: &str, t_ns: u64) -> serde_json::Value {
    let group = serde_json::json!({
        "anon_bytes": 0, "shmem_bytes": 0, "file_bytes": 0, "swap_bytes": 0, "swap_cache_bytes": 0
    });
    serde_json::json!({
        "kind": "sample", "app": app, "block": block, "order": 0, "mode": mode, "attempt": 0, "t0_monotonic_ns": 1,
        "t_active_ns": 1, "t_key_ns": 2, "t_first_frame_ns": t_ns / 2, "t_settled_ns": t_ns, "t_end_ns": t_ns + 1,
        "capped": false, "tiles": 1000, "answer_tiles": 500,
        "frames": [{"t_ns": t_ns, "changed": 900, "from_final": 0, "uniform": 10, "cpu_us": 90_000, "majflt": 7}],
        "context": [], "processes": {}, "session": {}, "app_cpu_us": 90_000, "service_cpu_us": 0,
        "stalled_us": {"cpu": 900, "io": 4_000, "memory": 60}, "system": {}, "group_after": group, "prepage": [],
        "state": {
            "pages": {
                "present_anon": 0, "present_shmem": 0, "present_file": 0, "present_file_shared": 0, "swapped_private": 0
            },
            "cached_file_pages": 0, "group": group, "service": group, "rounds": 0, "reclaim_ns": 0, "verify_ns": 0
        }
    })
}

/// Launches of four programs, six of each scenario.
fn launches() -> Vec<serde_json::Value> {
    let scenarios = [("cold", 200), ("warm", 100), ("fast", 120)];
    let names = scenarios.map(|(scenario, _)| scenario);
    let mut lines = vec![serde_json::json!({
        "kind": "launches", "format": 1, "time_unix_s": 1_795_395_835, "machine": machine(), "versions": {}, "programs": [],
        "parameters": {
            "scenarios": names, "runs": 6, "seed": 1, "learn": "cold", "throttle": null, "simultaneous": [],
            "strangers_percent_max": 10.0, "quiet_ms": 1000, "cap_ms": 30_000
        }
    })];
    for program in ["git", "gcc", "node", "vim"] {
        for block in 0..6_u64 {
            for (scenario, ms) in scenarios {
                lines.push(serde_json::json!({
                    "kind": "launch", "program": program, "block": block, "order": 0, "scenario": scenario, "attempt": 0,
                    "t0_monotonic_ns": 1, "t_end_ns": (ms + block) * 1_000_000, "t_first_frame_ns": null, "capped": false,
                    "t_vmtouch_ns": null, "known_pages": null, "preload": null, "other_program": null, "frames": [],
                    "state": null, "cpu_us": 1_000, "system": {}, "report": null, "left_alone": false, "store_bytes": 0
                }));
            }
        }
    }
    lines
}

/// The report of these records; returns where it is.
fn report(place: &Place, records: &[String]) -> PathBuf {
    let page = place.0.join("report.html");
    let status = Command::new(env!("CARGO_BIN_EXE_prepage-eval"))
        .arg("report")
        .args(records)
        .arg("--out")
        .arg(&page)
        .status()
        .expect("run prepage-eval");
    assert!(status.success());
    page
}

const BROWSERS: [&str; 5] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "firefox",
    "firefox-esr",
];

/// The first of them that is there.
fn browser() -> Option<&'static str> {
    let is_there = |name: &&str| {
        let said = Command::new(name).arg("--version").output();
        said.is_ok_and(|said| said.status.success())
    };
    BROWSERS.into_iter().find(is_there)
}

/// A browser without a window that shows a page, ended when it is dropped.
struct Running(Child);

impl Running {
    fn start(browser: &str, place: &Place, page: &Path) -> Self {
        let profile = place.0.join("profile");
        fs::create_dir_all(&profile).expect("make a directory");
        let mut command = Command::new(browser);
        command.arg("--headless");
        match browser.starts_with("firefox") {
            true => command.arg("--no-remote").arg("--profile").arg(&profile),
            false => command
                .args(["--no-sandbox", "--disable-gpu", "--window-size=1400,3000"])
                .arg(format!("--user-data-dir={}", profile.display())),
        };
        let child = command
            .arg(format!("file://{}", page.display()))
            .env("HOME", &place.0)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.expect("run the browser"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks the page about itself once it is loaded, and posts the answers to us. Only the copy that is tested has it.
const PROBE: &str = r#"<script>
    const errors = [];
    addEventListener('error', event => errors.push(event.message || event.target.tagName), true);
    addEventListener('load', () => {
        document.querySelectorAll('details').forEach(one => one.open = true);
        const plots = [...document.querySelectorAll('svg')].map(svg => svg.getBoundingClientRect());
        const dead = [...document.querySelectorAll('nav a')].filter(a => !document.querySelector(a.getAttribute('href')));
        const answers = JSON.stringify({
            errors,
            requests: performance.getEntriesByType('resource').map(one => one.name),
            sections: document.querySelectorAll('section').length,
            tables: [...document.querySelectorAll('table')].filter(table => table.getBoundingClientRect().height > 0).length,
            plots: plots.length,
            drawn: plots.filter(plot => plot.width > 100 && plot.height > 20).length,
            empty: [...document.querySelectorAll('svg')].filter(svg => svg.children.length === 0).length,
            dead: dead.length,
            scrolls: document.documentElement.scrollWidth > innerWidth,
            headings: [...document.querySelectorAll('h2')].map(one => one.textContent),
        });
        fetch('http://ADDRESS/', {method: 'POST', mode: 'no-cors', body: answers});
    });
</script>"#;

/// What the browser says of the page.
fn asked(browser: &str, place: &Place, page: &Path) -> serde_json::Value {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let address = listener.local_addr().expect("an address").to_string();
    let html = fs::read_to_string(page).expect("read the page");
    let probed = place.0.join("probed.html");
    let probe = PROBE.replace("ADDRESS", &address);
    fs::write(
        &probed,
        html.replacen("<head>", &format!("<head>{probe}"), 1),
    )
    .expect("write the copy");
    let _running = Running::start(browser, place, &probed);
    let answers = posted(&listener);
    serde_json::from_str(&answers).unwrap_or_else(|e| panic!("{e} in: {answers}"))
}

/// What is posted to us first, within a minute.
fn posted(listener: &TcpListener) -> String {
    let until = Instant::now() + Duration::from_secs(60);
    listener.set_nonblocking(true).expect("set");
    while Instant::now() < until {
        match listener.accept() {
            Ok((stream, _)) => {
                if let Some(body) = body(stream) {
                    return body;
                }
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    panic!("the browser did not answer within a minute")
}

/// What a request has for a body, if it is one and has one.
fn body(mut stream: TcpStream) -> Option<String> {
    stream.set_nonblocking(false).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut len = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim().to_ascii_lowercase().split_once(':') {
            Some(("content-length", bytes)) => len = bytes.trim().parse().ok()?,
            Some(_) => {}
            None if line.trim().is_empty() => break,
            None => {}
        }
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body).ok()?;
    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").ok()?;
    String::from_utf8(body).ok().filter(|body| !body.is_empty())
}

fn a_browser_shows_all_of_the_page_and_asks_nobody_for_anything(browser: &str) {
    let place = Place::new();
    let records = [
        record(&place, "reclaimed.jsonl", &switches()),
        record(&place, "launches.jsonl", &launches()),
    ];
    let page = report(&place, &records);
    let html = fs::read_to_string(&page).expect("read the page");
    assert!(!html.contains("<script"), "the page itself has no script");
    assert!(
        html.contains("6.5 [4.5, 8.5], most 9.0 of 6"),
        "the longest waits"
    );
    let said = asked(browser, &place, &page);
    assert_eq!(said["errors"], serde_json::json!([]), "{said}");
    assert_eq!(said["requests"], serde_json::json!([]), "{said}");
    assert_eq!(
        (&said["sections"], &said["dead"]),
        (&2.into(), &0.into()),
        "{said}"
    );
    // Figure 11, four of each application; all programs' launches, and each program's.
    assert_eq!(
        (&said["plots"], &said["drawn"]),
        (&14.into(), &14.into()),
        "{said}"
    );
    assert_eq!(
        (&said["empty"], &said["scrolls"]),
        (&0.into(), &false.into()),
        "{said}"
    );
    assert!(
        said["tables"].as_u64().is_some_and(|tables| tables >= 10),
        "{said}"
    );
    let headings = said["headings"].to_string();
    for heading in ["2 applications", "launches", "What ASAP", "What FAST"] {
        assert!(headings.contains(heading), "{heading} in {headings}");
    }
}
