//! `apps`: what the store keeps.

use super::launches::phase;
use super::table::{bytes, columns, row};
use super::{Context, Failure, write_out};
use crate::api::*;
use prepage_engine::store::{PROFILE_BYTES_MAX, decode};
use std::io::Read;
use std::path::{Path, PathBuf};

/// `prepage apps list`
pub fn list(context: &Context) -> Result<(), Failure> {
    let reply: AppsReply = context.ask("ListApps", &serde_json::json!({}))?;
    context.print(&reply, |reply| {
        if reply.apps.is_empty() {
            return "nothing is kept of any application of yours".into();
        }
        let mut rows = vec![row([
            "application",
            "tracked",
            "switches",
            "launches",
            "launch phase",
            "profile",
        ])];
        rows.extend(reply.apps.iter().map(|app| {
            let tracked = if app.tracked { "yes" } else { "no" };
            row([
                &app.app,
                tracked,
                &app.switches.to_string(),
                &app.launches.to_string(),
                phase(app.launch_phase),
                &bytes(app.profile_bytes),
            ])
        }));
        columns(&rows)
    })
}

/// `prepage apps forget`
pub fn forget(context: &Context, app: String) -> Result<(), Failure> {
    let reply: AppReply = context.ask("Forget", &AppParameters { app })?;
    context.print(&reply, |reply| {
        format!("{} is forgotten, and tracked no longer", reply.app)
    })
}

/// `prepage apps export`
pub fn export(context: &Context, app: String, file: Option<PathBuf>) -> Result<(), Failure> {
    let reply: ExportReply = context.ask("Export", &AppParameters { app })?;
    let bytes = from_hexadecimal(&reply.profile)
        .ok_or_else(|| Failure::Local("the service sent no profile".into()))?;
    match file.filter(|f| f.as_os_str() != "-") {
        None => write_out(&bytes),
        Some(file) => {
            std::fs::write(&file, &bytes).map_err(|e| failed(&file, &e))?;
            context.print(&AppReply { app: reply.app }, |reply| {
                format!(
                    "{} exported to {} ({} bytes)",
                    reply.app,
                    file.display(),
                    bytes.len()
                )
            })
        }
    }
}

/// `prepage apps import`
pub fn import(context: &Context, file: &Path) -> Result<(), Failure> {
    // One byte more than any profile has: that is too large.
    let bytes_max = PROFILE_BYTES_MAX as u64 + 1;
    let mut bytes = Vec::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().take(bytes_max).read_to_end(&mut bytes),
        false => std::fs::File::open(file).and_then(|f| f.take(bytes_max).read_to_end(&mut bytes)),
    };
    read.map_err(|e| failed(file, &e))?;
    // The service looks too; it does not know which file it is.
    decode(&bytes).map_err(|reason| {
        let file = file.display();
        Failure::Local(format!(
            "{file}: {reason}: give a file that `prepage apps export` wrote"
        ))
    })?;
    let profile = to_hexadecimal(&bytes);
    let reply: AppReply = context.ask("Import", &ImportParameters { profile })?;
    context.print(&reply, |reply| format!("{} imported", reply.app))
}

fn failed(file: &Path, error: &std::io::Error) -> Failure {
    Failure::Local(format!("{}: {error}", file.display()))
}
