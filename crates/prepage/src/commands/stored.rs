//! Commands on a store that no service was asked about: what `prepage run` keeps where it launches without one.

use super::run::{complain, configuration};
use super::{Context, Failure};
use crate::api::*;
use crate::config::Config;
use crate::discover;
use crate::error::Error;
use crate::explain::explain;
use crate::wire::Request;
use prepage_core::app::AppModel;
use prepage_core::identity::AppId;
use prepage_engine::store::{Store, StoredProfile};
use serde_json::Value;
use std::io::ErrorKind;
use std::path::PathBuf;

/// A store, by its directory.
#[derive(Debug)]
pub struct Stored {
    dir: PathBuf,
    config: Config,
}

impl Stored {
    /// The store that was named.
    pub fn named(dir: PathBuf) -> Self {
        let config = configuration(None);
        Self { dir, config }
    }

    /// The store that `prepage run` uses while no service runs, as `error` tells; which is said.
    ///
    /// # Errors
    /// That error, where there is no store to be read either.
    pub fn without_service(context: &Context, error: Error) -> Result<Self, Failure> {
        let config = configuration(None);
        let dir = config.service.state.clone();
        match std::fs::read_dir(&dir) {
            Ok(_) => {
                complain(format_args!(
                    "no service answers at {}: this is the store {}",
                    context.socket.display(),
                    dir.display()
                ));
                Ok(Self { dir, config })
            }
            Err(absent) if absent.kind() == ErrorKind::NotFound => Err(error.into()),
            Err(denied) => {
                complain(format_args!("the store {}: {denied}", dir.display()));
                Err(error.into())
            }
        }
    }

    /// What the service would answer to this call, as far as a store can.
    pub fn answer(&self, request: Request) -> Result<Value, Failure> {
        let call = Call::parse(request).map_err(|error| Failure::Local(format!("{error:?}")))?;
        match call {
            Call::ListApps => {
                let apps = self.look_at()?.list().into_iter().map(KnownApp::from);
                encode(AppsReply {
                    apps: apps.collect(),
                })
            }
            Call::Explain(asked) => {
                let store = self.look_at()?;
                encode(self.explain(the_one(&store, &asked.app)?))
            }
            Call::Stats(asked) => {
                let store = self.look_at()?;
                let apps: Vec<AppId> = match asked.app {
                    Some(app) => vec![the_one(&store, &app)?.app.clone()],
                    None => store.list().into_iter().map(|stored| stored.app).collect(),
                };
                let kept = apps.iter().filter_map(|app| store.load(app)).map(kept);
                encode(StatsReply {
                    kept: kept.collect(),
                    ..StatsReply::default()
                })
            }
            Call::Export(asked) => {
                let store = self.look_at()?;
                let app = &the_one(&store, &asked.app)?.app;
                encode(ExportReply {
                    app: app.to_string(),
                    profile: to_hexadecimal(&store.export(app).unwrap_or_default()),
                })
            }
            Call::Forget(asked) => self.change(|store| {
                let app = the_one(store, &asked.app)?.app.clone();
                store.forget(&app);
                Ok(app)
            }),
            Call::Import(asked) => self.change(|store| {
                let bytes = from_hexadecimal(&asked.profile).unwrap_or_default();
                store.import(&bytes).map_err(failed)
            }),
            _ => Err(Failure::Local("only the service does that".into())),
        }
    }

    fn look_at(&self) -> Result<Store, Failure> {
        let (store, warnings) = Store::look_at(&self.dir).map_err(failed)?;
        warnings.iter().for_each(complain);
        Ok(store)
    }

    fn change(
        &self,
        change: impl FnOnce(&mut Store) -> Result<AppId, Failure>,
    ) -> Result<Value, Failure> {
        let (mut store, warnings) = Store::open(&self.dir).map_err(failed)?;
        warnings.iter().for_each(complain);
        // The failure says it.
        store.warn_by(|_| ());
        let app = change(&mut store)?.to_string();
        store.flush().map_err(failed)?;
        encode(AppReply { app })
    }

    fn explain(&self, stored: &StoredProfile) -> ExplainReply {
        let params = self.config.params();
        let model = AppModel::new(stored.profile.clone(), &params);
        let mode = self.config.service.mode;
        let known = explain(&stored.app, &model, &stored.launch, &params, mode, false);
        ExplainReply {
            tracked: stored.tracked.is_some(),
            ..known
        }
    }
}

/// The one application of the store that is called so.
fn the_one<'a>(store: &'a Store, text: &str) -> Result<&'a StoredProfile, Failure> {
    let named = discover::named(text);
    let mut apps: Vec<AppId> = store.list().into_iter().map(|stored| stored.app).collect();
    apps.retain(|app| named.means(app));
    let app = discover::only(apps, text, |app| app).map_err(Failure::Local)?;
    let stored = store.load(&app);
    stored.ok_or_else(|| Failure::Local(format!("nothing is kept of {app}")))
}

fn kept(stored: &StoredProfile) -> KeptLaunches {
    let launch = &stored.launch;
    KeptLaunches {
        app: stored.app.to_string(),
        launches: launch.launches,
        phase: launch.phase,
        helped_us: (launch.helped.median_us(), launch.helped.len() as u64),
        held_out_us: (launch.held_out.median_us(), launch.held_out.len() as u64),
        misses: launch.misses,
    }
}

fn encode<T: serde::Serialize>(reply: T) -> Result<Value, Failure> {
    serde_json::to_value(reply).map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Local(error.to_string())
}
