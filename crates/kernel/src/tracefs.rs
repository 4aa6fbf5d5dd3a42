//! tracefs: ids and field offsets of tracepoints, without leaving a mount behind.

use crate::error::{Error, Result};
use crate::mountinfo;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// The root directory of a tracefs.
#[derive(Debug)]
pub struct Tracefs {
    root: OwnedFd,
}

/// A tracepoint's identity and layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFormat {
    /// The id, for perf_event_open. It differs between kernels and, for modules, between boots.
    pub id: u32,
    /// The fields, the common ones included.
    pub fields: Vec<Field>,
}

/// A field of a tracepoint's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, without array brackets.
    pub name: String,
    /// Its offset in the record, in bytes.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
    /// Whether it is signed.
    pub signed: bool,
}

impl EventFormat {
    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl Field {
    /// The field's bytes; `None` where the record is too short.
    pub fn bytes<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        record.get(self.offset..)?.get(..self.size)
    }

    /// The bytes of a `__data_loc` field, which holds where in the record they are; `None` where it is too short.
    pub fn dynamic<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        // The length above 16 bits of offset from the start of the record.
        let location = u32::from_ne_bytes(self.bytes(record)?.try_into().ok()?);
        let (offset, len) = (location & 0xffff, location >> 16);
        record.get(offset as usize..)?.get(..len as usize)
    }

    /// The value of an integer field of 1, 2, 4 or 8 bytes, zero-extended; `None` where the record is too short.
    pub fn unsigned(&self, record: &[u8]) -> Option<u64> {
        let bytes = self.bytes(record)?;
        match *bytes {
            [byte] => Some(u64::from(byte)),
            [a, b] => Some(u64::from(u16::from_ne_bytes([a, b]))),
            [a, b, c, d] => Some(u64::from(u32::from_ne_bytes([a, b, c, d]))),
            _ => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
        }
    }
}

impl Tracefs {
    /// The mounted tracefs if there is one, else a detached mount of our own (fsopen, 5.2+, needs CAP_SYS_ADMIN),
    /// which nobody else sees and which ends with this value.
    pub fn open() -> Result<Tracefs> {
        let mounts = mountinfo::read()?;
        // Asked of mountinfo: looking below /sys/kernel/debug/tracing would make debugfs mount one, and leave it there.
        let mounted = mounts
            .iter()
            .rev()
            .find(|mount| mount.fs_type == "tracefs" && mount.root.as_os_str() == "/");
        if let Some(mount) = mounted {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            if let Ok(root) = rustix::fs::open(&mount.mount_point, flags, Mode::empty()) {
                let mounted = Tracefs { root };
                // Only root may look into it (6.18), although others may open it.
                if mounted.has("events") {
                    return Ok(mounted);
                }
            }
        }
        Tracefs::open_detached()
    }

    /// A detached mount even where a tracefs is mounted.
    pub fn open_detached() -> Result<Tracefs> {
        const DENIED: &str = "tracefs (none is mounted that may be read, and to mount it takes CAP_SYS_ADMIN, which containers do without)";
        let failed = |operation| move |error: Errno| Error::new(operation, "tracefs", error);
        let context =
            fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|error| match error {
                Errno::PERM => Error::new("fsopen", DENIED, error),
                _ => failed("fsopen")(error),
            })?;
        fsconfig_create(context.as_fd()).map_err(failed("fsconfig"))?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC
            | MountAttrFlags::MOUNT_ATTR_RDONLY;
        let root = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
            .map_err(failed("fsmount"))?;
        Ok(Tracefs { root })
    }

    /// The format of a tracepoint; [`Error::is_not_found`] where this kernel does not have it.
    pub fn event(&self, system: &str, name: &str) -> Result<EventFormat> {
        use std::io::Read;
        let path = format!("events/{system}/{name}/format");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.root, path.as_str(), flags, Mode::empty())
            .map_err(|error| Error::new("open", path.as_str(), error))?;
        let mut contents = String::new();
        std::fs::File::from(fd)
            .read_to_string(&mut contents)
            .map_err(|error| Error::new("read", path.as_str(), error))?;
        parse_format(&contents)
            .ok_or_else(|| Error::malformed("parse", path, "not an event format"))
    }

    /// Whether the tracefs has a file or directory at this relative path.
    pub fn has(&self, path: &str) -> bool {
        rustix::fs::statat(&self.root, path, rustix::fs::AtFlags::empty()).is_ok()
    }
}

/// Parses an event's format file; `None` where it is malformed.
pub fn parse_format(contents: &str) -> Option<EventFormat> {
    let mut format = EventFormat::default();
    for line in contents.lines() {
        if let Some(id) = line.strip_prefix("ID:") {
            format.id = id.trim().parse().ok()?;
        } else if let Some(field) = line.trim_start().strip_prefix("field:") {
            format.fields.push(parse_field(field)?);
        }
    }
    (format.id != 0 && !format.fields.is_empty()).then_some(format)
}

/// `unsigned long i_ino; offset:8; size:8; signed:0;` with tabs.
fn parse_field(text: &str) -> Option<Field> {
    let mut parts = text.split(';').map(str::trim);
    let declaration = parts.next()?;
    let mut number = |key: &str| -> Option<usize> { parts.next()?.strip_prefix(key)?.parse().ok() };
    let offset = number("offset:")?;
    let size = number("size:")?;
    let signed = number("signed:")? != 0;
    let name = declaration.rsplit([' ', '*']).next()?;
    let name = name.split('[').next().filter(|name| !name.is_empty())?;
    Some(Field {
        name: name.to_owned(),
        offset,
        size,
        signed,
    })
}

/// Major and minor of a `dev_t` field: the kernel's own, 12 bits of major above 20 of minor, not the encoding of stat.
pub fn device(dev: u64) -> Option<(u32, u32)> {
    let dev = u32::try_from(dev).ok()?;
    Some((dev >> 20, dev & 0xf_ffff))
}

/// The tracepoints below `events/` that a caller needs, each as present or absent (facts, not errors).
pub fn events(tracefs: &Tracefs, system: &str, names: &[&str]) -> Result<Vec<Option<EventFormat>>> {
    names
        .iter()
        .map(|name| match tracefs.event(system, name) {
            Ok(format) => Ok(Some(format)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: mm_filemap_fault\nID: 597\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:const char *name;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:dev_t s_dev;\toffset:32;\tsize:4;\tsigned:0;\n\nprint fmt: \"dev=%d\", REC->s_dev\n";

    #[test]
    fn ids_and_fields() {
        let format = parse_format(FORMAT).expect("well formed");
        assert_eq!(format.id, 597);
        let names: Vec<&str> = format
            .fields
            .iter()
            .map(|field| field.name.as_str())
            .collect();
        assert_eq!(
            names,
            ["common_type", "common_pid", "comm", "name", "s_dev"]
        );
        let device = format.field("s_dev").expect("listed");
        assert_eq!((device.offset, device.size, device.signed), (32, 4, false));
        let mut record = vec![0; 36];
        record[32..].copy_from_slice(&77_u32.to_ne_bytes());
        assert_eq!(device.unsigned(&record), Some(77));
        assert_eq!(device.unsigned(&record[..35]), None);
        assert_eq!(
            format
                .field("comm")
                .and_then(|field| field.unsigned(&record)),
            None
        );
    }

    #[test]
    fn dynamic_fields_are_bounded_by_the_record() {
        let field = Field {
            name: "filename".to_owned(),
            offset: 0,
            size: 4,
            signed: false,
        };
        let record = |offset: u32, len: u32| {
            let mut record = (offset | len << 16).to_ne_bytes().to_vec();
            record.extend(b"/sh\0");
            record
        };
        assert_eq!(field.dynamic(&record(4, 4)), Some(&b"/sh\0"[..]));
        assert_eq!(field.dynamic(&record(4, 5)), None);
        assert_eq!(field.dynamic(&record(9, 0)), None);
        assert_eq!(field.dynamic(&record(4, 4)[..3]), None);
    }

    #[test]
    fn malformed_formats_are_none() {
        for bad in [
            "",
            "ID: x\n",
            "ID: 5\n",
            "ID: 5\n\tfield:int a;\toffset:x;\tsize:4;\tsigned:0;\n",
            "ID: 5\nfield:int a;\n",
        ] {
            assert_eq!(parse_format(bad), None, "{bad:?}");
        }
    }
}
