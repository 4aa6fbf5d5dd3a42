//! A private desktop session: Xvfb with its picture in a file, openbox with the least configuration, directories of its
//! own.

use super::{SCREEN_HEIGHT, SCREEN_WIDTH};
use crate::error::{Context, Error, Result};
use crate::group::Group;
use crate::log::log_path;
use crate::packages::PATH;
use crate::user::User;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Directories of one run.
#[derive(Clone, Debug)]
pub struct Places {
    /// On a disk: home directory, temporary files, application profiles, content.
    pub disk: PathBuf,
    /// In memory: framebuffer, runtime directory, copies of prepage's own binaries.
    pub memory: PathBuf,
    /// Whose the directories of the applications are, where they are not root's.
    pub user: Option<User>,
}

impl Places {
    /// The home directory that the applications see.
    pub fn home(&self) -> PathBuf {
        self.disk.join("home")
    }

    /// Where the applications put temporary files, some of which they leave behind.
    pub fn temporary(&self) -> PathBuf {
        self.disk.join("tmp")
    }

    /// The runtime directory that the applications see.
    pub fn runtime(&self) -> PathBuf {
        self.memory.join("runtime")
    }

    /// The directory of the framebuffer.
    pub fn framebuffer(&self) -> PathBuf {
        self.memory.join("framebuffer")
    }

    /// Makes all of them.
    pub fn make(&self) -> Result<()> {
        for directory in [self.runtime(), self.framebuffer(), self.temporary()] {
            fs::create_dir_all(&directory).context("make", directory.display())?;
        }
        fs::set_permissions(self.runtime(), fs::Permissions::from_mode(0o700))
            .context("restrict", "runtime directory")?;
        self.make_home(&self.home())
    }

    /// Gives the directories of the applications to a user, where one is named; homes that are made later, too.
    ///
    /// # Errors
    /// Where there is no such user, or root may not.
    pub fn give_to(&mut self, user: Option<&str>) -> Result<()> {
        self.user = user.map(User::find).transpose()?;
        self.user.map_or(Ok(()), |user| {
            user.own(&self.runtime())?;
            user.own(&self.temporary())?;
            user.own(&self.home())
        })
    }

    /// The environment in which the applications run, as far as it is not the session's.
    pub fn environment(&self) -> Vec<(String, OsString)> {
        vec![
            ("HOME".into(), self.home().into()),
            ("TMPDIR".into(), self.temporary().into()),
            ("PATH".into(), PATH.into()),
            ("LANG".into(), "C.UTF-8".into()),
        ]
    }

    /// Makes a home directory for applications: no carets that blink and no animations, since a picture that is to settle has to
    /// stay.
    pub fn make_home(&self, home: &Path) -> Result<()> {
        const GTK_2: &str = "gtk-cursor-blink=0\ngtk-enable-animations=0\n";
        const GTK_3_AND_4: &str = "[Settings]\ngtk-cursor-blink=0\ngtk-enable-animations=0\n";
        for (directory, file, settings) in [
            ("", ".gtkrc-2.0", GTK_2),
            (".config/gtk-3.0", "settings.ini", GTK_3_AND_4),
            (".config/gtk-4.0", "settings.ini", GTK_3_AND_4),
        ] {
            let directory = home.join(directory);
            fs::create_dir_all(&directory).context("make", directory.display())?;
            let path = directory.join(file);
            fs::write(&path, settings).context("write", path.display())?;
        }
        self.user.map_or(Ok(()), |user| user.own(home))
    }
}

/// The running session. Its processes are in a control group, by which the restorer ends them.
#[derive(Debug)]
pub struct Session {
    /// For instance `:5`.
    pub display: String,
    /// Display server and window manager. They are held until the run ends, and ended by the restorer.
    pub processes: Vec<Child>,
}

/// Starts a command inside a group, from its first instruction on.
pub fn command_in(group: &Group, program: &str) -> Result<Command> {
    let mut command = entering(&group.procs_files(), false)?;
    command.arg("--").arg(program).stdin(Stdio::null());
    Ok(command)
}

/// A command that enters control groups by these `cgroup.procs` files; what it then becomes is to be added. With `held`
/// it says so on its standard input, a socket, and waits there to be let go.
pub fn entering(procs: &[PathBuf], held: bool) -> Result<Command> {
    let own = std::env::current_exe().context("find", "own executable")?;
    let mut command = Command::new(own);
    command.arg("launch-in");
    for file in procs {
        command.arg("--procs").arg(file);
    }
    if held {
        command.arg("--held");
    }
    // A process group of its own: a terminal's interrupt goes to us, and the restorer ends these in order.
    command.process_group(0);
    Ok(command)
}

/// The body of the hidden `launch-in` command: enters the groups, waits if it is held, then becomes the program.
pub fn launch_in(procs: &[PathBuf], held: bool, command: &[OsString]) -> Error {
    for file in procs {
        if let Err(e) = fs::write(file, std::process::id().to_string()) {
            return Error::new("enter", file.display(), e);
        }
    }
    let Some((program, arguments)) = command.split_first() else {
        return Error::new("launch", "nothing", "no program given");
    };
    let mut becoming = Command::new(program);
    becoming.args(arguments);
    if held {
        if let Err(e) = wait_to_be_let_go() {
            return Error::new("launch", program.display(), e);
        }
        becoming.stdin(Stdio::null());
    }
    Error::new("launch", program.display(), becoming.exec())
}

fn wait_to_be_let_go() -> std::io::Result<()> {
    rustix::io::write(rustix::stdio::stdin(), b"r")?;
    std::io::stdin().read_exact(&mut [0])
}

impl Session {
    /// Starts the display and the window manager.
    pub fn start(places: &Places, group: &Group) -> Result<Self> {
        let (display, server) = start_server(places, group)?;
        let manager = start_window_manager(places, group, &display)?;
        Ok(Self {
            display,
            processes: vec![server, manager],
        })
    }

    /// The environment in which this session's programs run; nothing of the caller's desktop gets through.
    pub fn environment(&self, places: &Places) -> Vec<(String, OsString)> {
        let mut environment = places.environment();
        environment.extend([
            ("DISPLAY".into(), self.display.clone().into()),
            ("XDG_RUNTIME_DIR".into(), places.runtime().into()),
            ("NO_AT_BRIDGE".into(), "1".into()),
            ("GTK_THEME".into(), "Adwaita".into()),
        ]);
        environment
    }
}

fn start_server(places: &Places, group: &Group) -> Result<(String, Child)> {
    let mut server = command_in(group, "Xvfb")?
        .args(["-displayfd", "1", "-screen", "0"])
        .arg(format!("{SCREEN_WIDTH}x{SCREEN_HEIGHT}x24"))
        .arg("-fbdir")
        .arg(places.framebuffer())
        .args(["-nolisten", "tcp", "-noreset", "-s", "0", "-dpi", "96"])
        .stdout(Stdio::piped())
        .stderr(log_file(&places.disk, "xvfb")?)
        .spawn()
        .context("start", "Xvfb")?;
    let mut line = String::new();
    let output = server.stdout.take().expect("piped");
    // The server writes its number when it is ready to serve.
    BufReader::new(output.take(16))
        .read_line(&mut line)
        .context("read display number of", "Xvfb")?;
    let number: u32 = line
        .trim()
        .parse()
        .context("start", "Xvfb (is it installed? see xvfb.log)")?;
    Ok((format!(":{number}"), server))
}

/// No animations, no decorations, every window over the whole screen, and focus only as asked for.
const OPENBOX_CONFIGURATION: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<openbox_config xmlns="http://openbox.org/3.4/rc">
  <focus><focusNew>yes</focusNew><followMouse>no</followMouse><underMouse>no</underMouse></focus>
  <theme><name>Clearlooks</name><animateIconify>no</animateIconify></theme>
  <desktops><number>1</number><popupTime>0</popupTime></desktops>
  <keyboard/>
  <mouse/>
  <applications>
    <application type="normal"><decor>no</decor><maximized>yes</maximized></application>
  </applications>
</openbox_config>
"#;

fn start_window_manager(places: &Places, group: &Group, display: &str) -> Result<Child> {
    let configuration = places.disk.join("openbox.xml");
    fs::write(&configuration, OPENBOX_CONFIGURATION).context("write", configuration.display())?;
    command_in(group, "openbox")?
        .args(["--sm-disable", "--config-file"])
        .arg(&configuration)
        .env("DISPLAY", display)
        .env("HOME", places.home())
        .env("XDG_RUNTIME_DIR", places.runtime())
        .stdout(Stdio::null())
        .stderr(log_file(&places.disk, "openbox")?)
        .spawn()
        .context("start", "openbox")
}

/// Where a program's messages go.
pub fn log_file(directory: &Path, name: &str) -> Result<Stdio> {
    let path = log_path(directory, name);
    Ok(fs::File::create(&path)
        .context("make", path.display())?
        .into())
}
