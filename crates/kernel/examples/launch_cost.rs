//! What observing a launch costs, in medians of wall time from a warm page cache. As root:
//! `cargo run --release -p prepage-kernel --example launch_cost -- 30 python3 -c 'import json'`

use prepage_kernel::block_trace::{BlockKind, BlockTrace};
use prepage_kernel::exec_trace::ExecTrace;
use prepage_kernel::path_calls::PathTracer;
use prepage_kernel::perf::{TracepointRings, Wakeup};
use prepage_kernel::spawn::fork_detached;
use prepage_kernel::task_events::TaskRings;
use prepage_kernel::tracefs::Tracefs;
use prepage_kernel::{clock, exec, sched};
use std::error::Error;
use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

const RING_PAGES: usize = 256;

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Bare,
    Exec,
    Detached,
    Traced,
    TaskRecords,
    ExecTrace,
    BlockTrace,
}

const WAYS: [(Way, &str); 7] = [
    (Way::Bare, "bare"),
    (Way::Exec, "through a program that only execs"),
    (Way::Detached, "the same, held by a detached process"),
    (Way::Traced, "the same, which traces its path calls"),
    (Way::TaskRecords, "bare, task records of the system"),
    (Way::ExecTrace, "bare, exec tracepoint of the system"),
    (Way::BlockTrace, "bare, block tracepoints of the system"),
];

fn main() -> Outcome<()> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [first, command @ ..] = &arguments[..] else {
        return Err("usage: launch_cost RUNS COMMAND [ARGUMENT...]".into());
    };
    let first = first.to_str().unwrap_or_default();
    let Ok(runs) = first.parse::<usize>() else {
        return Err(become_command(first, command));
    };
    let mut times = vec![Vec::with_capacity(runs); WAYS.len()];
    for run in 0..runs {
        // Another order in every run, since a launch depends on what the last one did to the cores. The number of ways
        // is prime: every stride visits all.
        let stride = 1 + run % (WAYS.len() - 1);
        for step in 0..WAYS.len() {
            let index = step * stride % WAYS.len();
            times[index].push(time(WAYS[index].0, command)?);
        }
    }
    for (times, (_, name)) in times.iter_mut().zip(WAYS) {
        println!("{:9.2} ms  {name}", median(times) as f64 / 1e6);
    }
    wakeups()
}

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// Wall time of one launch in ns.
fn time(way: Way, command: &[OsString]) -> Outcome<u64> {
    let (program, arguments) = command.split_first().ok_or("no command")?;
    let mut launch = match way {
        Way::Exec | Way::Detached | Way::Traced => {
            let mut launch = Command::new(std::env::current_exe()?);
            let role = match way {
                Way::Exec => "exec",
                Way::Detached => "detached",
                _ => "traced",
            };
            launch.arg(role).arg(program);
            launch
        }
        _ => Command::new(program),
    };
    launch.args(arguments).stdout(Stdio::null());
    let cpus = sched::online_cpus()?;
    let open = |ids: &[u32]| TracepointRings::open(ids, &cpus, RING_PAGES, Wakeup::Bytes(1 << 19));
    let tasks = match way {
        Way::TaskRecords => Some(TaskRings::open(&cpus, RING_PAGES, Wakeup::Bytes(1 << 19))?),
        _ => None,
    };
    let events = match way {
        Way::ExecTrace => Some(open(&[ExecTrace::find(&Tracefs::open()?)?.event_id()])?),
        Way::BlockTrace => {
            let trace = BlockTrace::find(&Tracefs::open()?, &BlockKind::ALL)?;
            Some(open(&trace.event_ids())?)
        }
        _ => None,
    };
    tasks.iter().try_for_each(|rings| rings.enable())?;
    events.iter().try_for_each(|rings| rings.enable())?;
    // What the last one left to be done, such as closing its rings, is done meanwhile.
    std::thread::sleep(Duration::from_millis(5));
    let start = clock::monotonic_ns();
    let status = launch.status()?;
    let time = clock::monotonic_ns() - start;
    if !status.success() {
        return Err(format!("{program:?} failed: {status}").into());
    }
    Ok(time)
}

/// What `prepage run` would do.
fn become_command(role: &str, command: &[OsString]) -> Box<dyn Error> {
    let Some((program, arguments)) = command.split_first() else {
        return "no command".into();
    };
    if role == "exec" {
        return exec::exec(program, arguments).into();
    }
    let traced = role == "traced";
    let held = fork_detached(move |detached| {
        if !traced {
            detached.release();
            return 0;
        }
        let tracer = PathTracer::start(detached.original_pid(), |_| {});
        detached.release();
        i32::from(tracer.and_then(PathTracer::wait).is_err())
    });
    match held {
        Ok(held) => {
            let _ = held.wait(Duration::from_millis(100));
            held.exec(program, arguments).into()
        }
        Err(error) => error.into(),
    }
}

/// How soon after an exec a waiting reader has its record, and how often it is woken while nothing happens.
fn wakeups() -> Outcome<()> {
    let launch = || Command::new("/bin/true").status();
    let trace = ExecTrace::find(&Tracefs::open()?)?;
    let cpus = sched::online_cpus()?;
    let mut rings = TracepointRings::open(&[trace.event_id()], &cpus, 8, Wakeup::Events(1))?;
    rings.enable()?;
    let stop = Arc::new(AtomicBool::new(false));
    let woken = Arc::new(AtomicU64::new(0));
    let reader = std::thread::spawn({
        let (stop, woken) = (Arc::clone(&stop), Arc::clone(&woken));
        move || {
            let mut delays = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                wait_for(&rings);
                let now = clock::monotonic_ns();
                woken.fetch_add(1, Ordering::Relaxed);
                rings.drain(|sample| delays.push(now.saturating_sub(sample.time_ns)));
            }
            delays
        }
    });
    for _ in 0..200 {
        launch()?;
    }
    let (before, start) = (woken.load(Ordering::Relaxed), Instant::now());
    std::thread::sleep(Duration::from_secs(5));
    let idle = woken.load(Ordering::Relaxed) - before;
    println!(
        "exec reader: {idle} wakeups in {:?} without a launch",
        start.elapsed()
    );
    stop.store(true, Ordering::Relaxed);
    launch()?;
    let mut delays = reader.join().map_err(|_| "the reader panicked")?;
    let middle = median(&mut delays);
    let last = delays.get(delays.len() * 99 / 100).copied().unwrap_or(0);
    let (middle, last) = (middle as f64 / 1e3, last as f64 / 1e3);
    println!(
        "exec to its reader: median {middle:.0} us, 99 % {last:.0} us, {} execs",
        delays.len()
    );
    Ok(())
}

fn wait_for(rings: &TracepointRings) {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut fds: Vec<PollFd<'_>> = rings
        .fds()
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    // Interrupted or not: what is there is drained.
    let _ = poll(&mut fds, None);
}
