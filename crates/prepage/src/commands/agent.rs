//! `agent`: reports window focus from a user's session.

use super::{Context, Failure};
use crate::api::{BeginParameters, BeginReply, Reporter, Target};
use crate::client::Client;
use crate::error::Error;
use crate::sources::focus::FocusWatch;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// The connection to the service, made anew after the service was away.
struct Line<'a> {
    socket: &'a Path,
    client: Option<Client>,
}

impl Line<'_> {
    /// Reports the focus. A connection that broke, as by a restart of the service, is made anew once.
    fn report(&mut self, pid: i32) -> Result<BeginReply, Error> {
        let parameters = BeginParameters {
            target: Target {
                pid: Some(pid),
                ..Target::default()
            },
            source: Reporter::Focus,
        };
        for fresh in [false, true] {
            if fresh || self.client.is_none() {
                self.client = Some(Client::connect(self.socket)?);
            }
            let Some(client) = &mut self.client else {
                continue;
            };
            match client.call("SwitchBegin", &parameters) {
                Err(Error::Broken { reason, socket }) => {
                    self.client = None;
                    if fresh {
                        return Err(Error::Broken { reason, socket });
                    }
                }
                answer => return answer,
            }
        }
        Err(Error::Broken {
            socket: self.socket.into(),
            reason: "not connected".into(),
        })
    }
}

/// `prepage agent`
pub fn agent(context: &Context, display: Option<&str>, verbose: bool) -> Result<(), Failure> {
    let (mut watch, refused) =
        FocusWatch::open(display).map_err(|e| Failure::Local(e.to_string()))?;
    if let Some(error) = refused {
        eprintln!("prepage agent: only the focus of windows of X is seen: {error}");
    }
    let mut line = Line {
        socket: &context.socket,
        client: Client::connect(&context.socket).ok(),
    };
    if line.client.is_none() {
        eprintln!(
            "prepage agent: the service is not there yet: tried again with each change of focus"
        );
    }
    let mut complained = line.client.is_none();
    loop {
        let pid = match watch.next_focus() {
            Ok(pid) => pid,
            // With the session that ends, and with it the agent's work.
            Err(Error::DisplayEnded(_)) => return Ok(()),
            Err(error) => return Err(Failure::Local(error.to_string())),
        };
        let called = Instant::now();
        match line.report(pid) {
            Ok(reply) => {
                complained = false;
                if verbose {
                    let app = reply.app.as_deref().unwrap_or("not tracked");
                    let us = called.elapsed().as_micros();
                    let line = format_args!("focus of process {pid}: {app}, answered in {us} us");
                    if writeln!(std::io::stdout(), "{line}").is_err() {
                        // Whoever wanted to read it is gone.
                        return Ok(());
                    }
                }
            }
            Err(error) if !complained => {
                complained = true;
                eprintln!("prepage agent: {error}");
            }
            Err(_) => {}
        }
    }
}
