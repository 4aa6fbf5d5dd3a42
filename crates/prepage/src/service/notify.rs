//! systemd's readiness notification: one datagram.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells systemd, where it asked for it. A message that does not arrive costs only its effect.
pub fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let bytes = path.as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    if let (Ok(socket), Ok(address)) = (UnixDatagram::unbound(), address) {
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}

/// What systemd wants to be told with `RELOADING=1`: the time, monotonic, in microseconds.
pub fn reloading() {
    let now_us = prepage_kernel::clock::monotonic_ns() / 1_000;
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}"));
}
