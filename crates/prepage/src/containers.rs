//! What containers are called. Their control groups name them by an id, which is another one whenever a container is made anew:
//! by its name, what was learned of it is found again.

use crate::discover;
use crate::identity::{base_name, is_container_id};
use prepage_kernel::process;
use serde::Deserialize;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Where Docker keeps what it knows of each container, in a directory of its id.
const DOCKER: &str = "/var/lib/docker/containers";

/// Longest description read, in bytes: environment and labels are most of one.
const DESCRIPTION_BYTES_MAX: u64 = 1 << 20;

/// What whoever made the container of this id, of this process and in the control group at this directory calls it; `None` where
/// that is not to be found out, as with containerd, whose containers have an id alone.
pub fn name_of(id: &str, pid: i32, group: &Path) -> Option<String> {
    by_monitor(id, pid).or_else(|| by_docker(Path::new(DOCKER), id, group))
}

/// By the process that watches each container of Podman from outside, its ancestor: conmon(8). What is inside may call itself as
/// it likes. So does CRI-O, but by names that hold a pod's id.
fn by_monitor(id: &str, pid: i32) -> Option<String> {
    let inside = process::mount_namespace(pid).ok()?;
    let is_outside = |&pid: &i32| process::mount_namespace(pid).is_ok_and(|there| there != inside);
    let outside = discover::ancestry(pid).filter(is_outside);
    let mut words = outside.map(discover::arguments);
    let words = words.find(|words| is_monitor(words, id))?;
    after(&words, "-n").map(str::to_owned)
}

fn is_monitor(words: &[String], id: &str) -> bool {
    let program = words.first().map(|path| base_name(path));
    program == Some("conmon") && after(words, "-c") == Some(id)
}

/// The word after the first that is this option.
fn after<'a>(words: &'a [String], option: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| word == option)?;
    words.get(at + 1).map(String::as_str)
}

/// What Docker writes of a container, as far as it matters here.
#[derive(Deserialize)]
struct Description {
    #[serde(rename = "Name")]
    name: String,
}

/// Not of a control group that a user made, who may call it by the id of anybody's container, or by any path.
fn by_docker(directory: &Path, id: &str, group: &Path) -> Option<String> {
    let is_roots = std::fs::metadata(group).is_ok_and(|group| group.uid() == 0);
    if !is_roots || !is_container_id(id) {
        return None;
    }
    let file = File::open(directory.join(id).join("config.v2.json")).ok()?;
    let mut text = String::new();
    let _ = file
        .take(DESCRIPTION_BYTES_MAX)
        .read_to_string(&mut text)
        .ok()?;
    let description: Description = serde_json::from_str(&text).ok()?;
    let name = description.name.trim_start_matches('/');
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::chown;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_monitor_of_a_container_says_its_name() {
        let conmon = words(
            "/usr/bin/conmon --api-version 1 -c 0a1b -u 0a1b -r /usr/bin/crun -n web -l k8s-file:/x",
        );
        assert!(is_monitor(&conmon, "0a1b"));
        assert_eq!(after(&conmon, "-n"), Some("web"));
        assert!(!is_monitor(&conmon, "0a1c"), "another's");
        assert!(!is_monitor(&words("/usr/bin/crun -c 0a1b -n x"), "0a1b"));
        assert_eq!(after(&words("conmon -n"), "-n"), None);
    }

    #[test]
    fn docker_says_a_container_s_name() {
        let directory = std::env::temp_dir().join(format!("prepage-docker-{}", process::own_pid()));
        let write = |id: &str, text: &str| {
            let own = directory.join(id);
            std::fs::create_dir_all(&own).expect("make the container's directory");
            std::fs::write(own.join("config.v2.json"), text).expect("write its description");
        };
        let ids = ["b", "c", "d", "e"].map(|last| format!("{last:0>64}"));
        write(
            &ids[0],
            r#"{"StreamConfig":{},"State":{"Pid":7},"Name":"/web","Config":{"Env":["A=b"]}}"#,
        );
        write(&ids[1], r#"{"Name":"/"}"#);
        write(&ids[2], "{\"Na");
        let group = directory.join("group");
        std::fs::create_dir(&group).expect("make what stands for the control group");
        let named = |id: &str| by_docker(&directory, id, &group);
        let web = Some("web".to_owned());
        assert_eq!(ids.each_ref().map(|id| named(id)), [web, None, None, None]);
        // What is no id may lead out of the directory.
        write("theirs", r#"{"Name":"/x"}"#);
        assert_eq!(named("theirs"), None);
        chown(&group, Some(65_534), None).expect("give the group away");
        assert_eq!(named(&ids[0]), None, "a user's, who may call it so");
        std::fs::remove_dir_all(&directory).expect("remove the test's directory");
    }
}
