//! What the service makes of launches.

use super::{Service, exchange, message};
use crate::error::{Context, Error, Result};
use prepage_core::identity::AppId;
use prepage_core::launch::manager::LaunchState;
use prepage_engine::store::single;
use serde_json::Value;
use std::io::BufReader;
use std::os::unix::net::UnixStream;

/// Launches looked for beyond the last one known. The service keeps the last 16 of an application: so many more may begin
/// between two looks, by anybody, without one being overlooked.
const AHEAD_MAX: u64 = 16;

/// A launch that the service records or helps; one that it leaves alone is none.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenLaunch {
    /// Its number: they count from 0 in the life of the service, over all applications.
    pub number: u64,
    /// The service's record of it, verbatim, as `prepage stats` has it; `None` before it is over.
    pub record: Option<Value>,
}

impl Service {
    /// The launches from this number on, oldest first.
    ///
    /// # Errors
    /// Where the service does not answer, or not as it should.
    pub fn launches_from(&self, first: u64) -> Result<Vec<SeenLaunch>> {
        seen_launches(&mut self.connect()?, first)
    }

    /// What it keeps of an application's launches; empty before the first.
    ///
    /// # Errors
    /// Where the profile cannot be read.
    pub fn launch_state(&self, app: &AppId) -> Result<LaunchState> {
        single::read_launch(&self.state, app).context("read", self.state.display())
    }
}

fn seen_launches(connection: &mut BufReader<UnixStream>, first: u64) -> Result<Vec<SeenLaunch>> {
    const METHOD: &str = "LaunchReport";
    let mut seen = Vec::new();
    for number in first..first + AHEAD_MAX {
        let call = message(METHOD, &serde_json::json!({ "launch": number }));
        let mut reply = exchange(connection, METHOD, &call)?;
        match reply["error"].as_str() {
            None => {
                let record = reply["parameters"]["record"].take();
                let record = Some(record).filter(|record| !record.is_null());
                seen.push(SeenLaunch { number, record });
            }
            Some(name) if name.ends_with(".NotFound") => {}
            Some(_) => return Err(Error::new("call", METHOD, reply)),
        }
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, Write};

    /// Launches 2 and 4 are over, 5 is under way, 3 is not kept any more, and others have not begun.
    fn answer(call: &Value) -> Value {
        match call["parameters"]["launch"].as_u64() {
            Some(number @ (2 | 4)) => {
                serde_json::json!({"parameters": {"record": {"launch_us": number}}})
            }
            Some(5) => serde_json::json!({"parameters": {"record": null}}),
            _ => serde_json::json!({"error": "org.prepage.Prepage1.NotFound"}),
        }
    }

    fn seen_by(answer: fn(&Value) -> Value, first: u64) -> Result<Vec<SeenLaunch>> {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
        let service = std::thread::spawn(move || {
            let calls = BufReader::new(theirs.try_clone().expect("a second descriptor")).split(0);
            for call in calls {
                let call = serde_json::from_slice(&call.expect("a call")).expect("JSON");
                let reply = [answer(&call).to_string().as_bytes(), &[0]].concat();
                theirs.write_all(&reply).expect("replied");
            }
        });
        let seen = seen_launches(&mut BufReader::new(ours), first);
        service.join().expect("every call was answered");
        seen
    }

    #[test]
    fn launches_that_have_begun_are_found_beyond_those_that_are_not_kept() {
        let seen = seen_by(answer, 3).expect("answered");
        let over = serde_json::json!({"launch_us": 4});
        let expected = [(4, Some(over)), (5, None)];
        assert_eq!(
            seen,
            expected.map(|(number, record)| SeenLaunch { number, record })
        );
        assert_eq!(seen_by(answer, 6).expect("answered"), []);
    }

    #[test]
    fn what_is_refused_is_no_launch_that_has_not_begun() {
        let refuse = |_: &Value| serde_json::json!({"error": "org.prepage.Prepage1.Failed"});
        let error = seen_by(refuse, 0).expect_err("refused").to_string();
        assert!(
            error.contains("LaunchReport") && error.contains("Failed"),
            "{error}"
        );
    }
}
