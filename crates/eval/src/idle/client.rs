//! The client: requests that come at fixed times, whether or not earlier ones were answered, and how long each took from
//! the time at which it was due. So a stall counts for every request that it holds up, not only for the first.

use super::protocol::{KEYS_PER_REQUEST, Protocol};
use super::zipf::Zipf;
use crate::clock::now_ns;
use crate::error::{Context, Error, Result};
use crate::random::Random;
use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Connections, each with a thread of its own that waits for one response at a time.
const CONNECTIONS: usize = 4;
/// A response that takes longer is an error.
const RESPONSE_LIMIT: Duration = Duration::from_secs(30);

/// One connection to a service.
#[derive(Debug)]
struct Connection {
    stream: BufReader<TcpStream>,
    protocol: Protocol,
}

impl Connection {
    fn open(port: u16, protocol: Protocol) -> io::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&address, RESPONSE_LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(RESPONSE_LIMIT))?;
        stream.set_write_timeout(Some(RESPONSE_LIMIT))?;
        Ok(Self {
            stream: BufReader::new(stream),
            protocol,
        })
    }

    fn ask(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(request)?;
        self.protocol
            .read_response(&mut self.stream, KEYS_PER_REQUEST)
    }
}

/// Requests that are made ahead of the time at which they are due.
#[derive(Clone, Debug)]
pub struct Requests {
    encoded: Vec<Vec<u8>>,
    interval_ns: u64,
}

impl Requests {
    /// As many as are due within `length_ms` at `rate_hz`, for keys that are drawn by `zipf`.
    pub fn draw(
        zipf: &Zipf,
        protocol: Protocol,
        rate_hz: u32,
        length_ms: u64,
        random: &mut Random,
    ) -> Self {
        let count = (u64::from(rate_hz) * length_ms / 1_000).max(1);
        let request = |_| {
            let keys: [u32; KEYS_PER_REQUEST] = std::array::from_fn(|_| zipf.draw(random));
            protocol.request(&keys)
        };
        Self {
            encoded: (0..count).map(request).collect(),
            interval_ns: 1_000_000_000 / u64::from(rate_hz.max(1)),
        }
    }

    /// How long they take if none is held up.
    pub fn length_ns(&self) -> u64 {
        self.encoded.len() as u64 * self.interval_ns
    }
}

/// What the client saw.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `CLOCK_MONOTONIC` just before the announcement; the first request is due then.
    pub t0_ns: u64,
    /// When the announcement was made, since t0.
    pub t_announced_ns: u64,
    /// From when each request was due until its response was there.
    pub latencies_us: Vec<u32>,
}

/// A client that is connected.
#[derive(Debug)]
pub struct Client {
    connections: Vec<Connection>,
}

/// What the threads of a client share.
struct Shared<'a> {
    requests: &'a Requests,
    next: AtomicUsize,
    t0_ns: AtomicU64,
    begin: Barrier,
}

impl Client {
    /// Connects.
    pub fn connect(port: u16, protocol: Protocol) -> Result<Self> {
        let open = |_| Connection::open(port, protocol).context("connect to", port);
        let connections = (0..CONNECTIONS).map(open).collect::<Result<_>>()?;
        Ok(Self { connections })
    }

    /// Announces, then sends every request when it is due. `meanwhile` runs beside, with t0, once the first is on its way.
    pub fn send(
        &mut self,
        requests: &Requests,
        announce: impl FnOnce() -> Result<()>,
        meanwhile: impl FnOnce(u64),
    ) -> Result<Seen> {
        let shared = Shared {
            requests,
            next: AtomicUsize::new(0),
            t0_ns: AtomicU64::new(0),
            begin: Barrier::new(self.connections.len() + 1),
        };
        thread::scope(|scope| {
            let workers: Vec<_> = self
                .connections
                .iter_mut()
                .map(|connection| scope.spawn(|| shared.work(connection)))
                .collect();
            let t0_ns = now_ns();
            let announced = announce();
            let t_announced_ns = now_ns() - t0_ns;
            if announced.is_err() {
                shared.next.store(requests.encoded.len(), Ordering::Relaxed);
            }
            shared.t0_ns.store(t0_ns, Ordering::Relaxed);
            shared.begin.wait();
            if announced.is_ok() {
                meanwhile(t0_ns);
            }
            let mut latencies_us = vec![0; requests.encoded.len()];
            for worker in workers {
                let answered = worker.join().expect("no thread of the client panics");
                for (i, us) in answered.context("ask", "the service")? {
                    latencies_us[i] = us;
                }
            }
            announced?;
            Ok(Seen {
                t0_ns,
                t_announced_ns,
                latencies_us,
            })
        })
    }
}

impl Shared<'_> {
    /// Takes requests, one after the other, until there are no more or one fails.
    fn work(&self, connection: &mut Connection) -> io::Result<Vec<(usize, u32)>> {
        self.begin.wait();
        let t0_ns = self.t0_ns.load(Ordering::Relaxed);
        let mut answered = Vec::new();
        loop {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(request) = self.requests.encoded.get(i) else {
                return Ok(answered);
            };
            let due_ns = t0_ns + i as u64 * self.requests.interval_ns;
            thread::sleep(Duration::from_nanos(due_ns.saturating_sub(now_ns())));
            connection.ask(request)?;
            let us = (now_ns() - due_ns) / 1_000;
            answered.push((i, u32::try_from(us).unwrap_or(u32::MAX)));
        }
    }
}

/// Waits until a service answers, which it does once its data is there.
pub fn wait_until_ready(
    port: u16,
    protocol: Protocol,
    mut is_alive: impl FnMut() -> bool,
) -> Result<()> {
    const LIMIT_NS: u64 = 180_000_000_000;
    let start = now_ns();
    while Connection::open(port, protocol).is_err() {
        if !is_alive() || now_ns() - start > LIMIT_NS {
            return Err(Error::new("start", "the service", "it does not listen"));
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead;
    use std::net::TcpListener;
    use std::sync::{Arc, OnceLock};
    use std::time::Instant;

    /// Answers nothing until `stall` after the first request came, and then everything at once.
    fn stand_in(stall: Duration) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let first = Arc::new(OnceLock::new());
        thread::spawn(move || {
            for client in listener.incoming().take(CONNECTIONS) {
                let (reader, first) = (BufReader::new(client.unwrap()), Arc::clone(&first));
                thread::spawn(move || {
                    answer(reader, || {
                        let end = *first.get_or_init(Instant::now) + stall;
                        thread::sleep(end.saturating_duration_since(Instant::now()));
                    })
                });
            }
        });
        port
    }

    fn answer(mut client: BufReader<TcpStream>, wait: impl Fn()) {
        let mut line = String::new();
        while client.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            if line == "\r\n" {
                wait();
                let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                if client.get_mut().write_all(response).is_err() {
                    return;
                }
            }
            line.clear();
        }
    }

    #[test]
    fn a_stall_counts_for_every_request_that_was_due_in_it() {
        const STALL_MS: u64 = 100;
        let port = stand_in(Duration::from_millis(STALL_MS));
        let mut client = Client::connect(port, Protocol::Http).unwrap();
        let zipf = Zipf::new(100, 0.99, 1);
        let requests = Requests::draw(&zipf, Protocol::Http, 1_000, 80, &mut Random::new(1));
        let seen = client.send(&requests, || Ok(()), |_| {}).unwrap();
        assert_eq!(seen.latencies_us.len(), 80);
        // The request that is due at millisecond i waits for what is left of the stall, which began after t0.
        for (i, &us) in seen.latencies_us.iter().enumerate() {
            let left_us = (STALL_MS - i as u64) * 1_000;
            assert!(u64::from(us) >= left_us - 1, "{i}: {us}");
        }
    }

    #[test]
    fn what_cannot_be_announced_is_not_measured() {
        let port = stand_in(Duration::ZERO);
        let mut client = Client::connect(port, Protocol::Http).unwrap();
        let zipf = Zipf::new(100, 0.99, 1);
        let requests = Requests::draw(&zipf, Protocol::Http, 1_000, 10_000, &mut Random::new(1));
        let fails = || Err(Error::new("announce", "it", "no"));
        let error = client.send(&requests, fails, |_| unreachable!());
        assert!(error.unwrap_err().to_string().contains("announce"));
    }
}
