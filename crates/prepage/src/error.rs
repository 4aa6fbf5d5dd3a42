//! What can go wrong here, in words for whoever has to mend it.

use std::path::PathBuf;

/// What to do where no service answers.
pub const START_HINT: &str =
    "Start it: `systemctl start prepaged`, or `sudo prepaged` in the foreground.";

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something of the service or of a command was not possible.
#[derive(Debug)]
pub enum Error {
    /// No service listens there.
    NotRunning {
        /// The socket.
        socket: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The connection to the service broke.
    Broken {
        /// The socket.
        socket: PathBuf,
        /// What happened.
        reason: String,
    },
    /// The service refused a call.
    Refused {
        /// The error's name, `org.prepage.Prepage1.NotTracked`.
        name: String,
        /// In words.
        reason: String,
    },
    /// A configuration cannot be used: file, line, key, and what is allowed.
    Configuration(String),
    /// No connection to the X server or to the compositor.
    NoDisplay(String),
    /// The one of them that there was has ended.
    DisplayEnded(String),
    /// It refused a request, or what it said cannot be understood.
    Display(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotRunning { socket, source } => write!(
                f,
                "the service does not answer at {}: {source}\n{START_HINT}\n\
                 Without it applications run as ever, and nothing is learned or fetched but for what\n\
                 root launches by `prepage run`. `prepage doctor` works without it.",
                socket.display()
            ),
            Self::Broken { socket, reason } => {
                write!(f, "connection to {}: {reason}", socket.display())
            }
            Self::Refused { reason, .. } | Self::Configuration(reason) => f.write_str(reason),
            Self::NoDisplay(error) => write!(
                f,
                "no connection to {error}\n\
                 Run the agent inside the session, or give it --display. Of Wayland's compositors sway, KWin and\n\
                 gamescope tell it the focus, and XWayland that of its own windows. GNOME Shell reports it by\n\
                 its extension (gnome-extensions enable prepage@prepage.org). With others the onset of faults,\n\
                 thawing and explicit calls work."
            ),
            Self::DisplayEnded(error) | Self::Display(error) => f.write_str(error),
        }
    }
}

impl std::error::Error for Error {}
