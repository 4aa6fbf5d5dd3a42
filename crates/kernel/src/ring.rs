//! The records of a perf ring buffer: pure functions over bytes.

use std::ops::Range;

/// PERF_RECORD_LOST and PERF_RECORD_SAMPLE of linux/perf_event.h.
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
const HEADER_BYTES: usize = 8;

/// One record of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A sample: the fields that the event's sample_type asks for, in the kernel's order.
    Sample(&'a [u8]),
    /// So many records did not fit into the ring.
    Lost(u64),
    /// Any other type, such as what [`crate::task_events`] decodes.
    Other {
        /// PERF_RECORD_*.
        kind: u32,
        /// PERF_RECORD_MISC_*: what the bits mean depends on the type.
        misc: u16,
        /// What follows the header.
        body: &'a [u8],
    },
}

/// Where the unread bytes of a ring lie: two ranges of offsets, the second empty unless they wrap around. `None` where
/// head and tail contradict each other. `size` must be a power of two.
pub fn unread(head: u64, tail: u64, size: usize) -> Option<(Range<usize>, Range<usize>)> {
    let count = usize::try_from(head.wrapping_sub(tail)).ok()?;
    if !size.is_power_of_two() || count > size {
        return None;
    }
    let start = (tail & (size as u64 - 1)) as usize;
    let first = count.min(size - start);
    Some((start..start + first, 0..count - first))
}

/// Calls `visit` for each record in `bytes`, which begin at a record. Returns `false` where they are malformed or
/// truncated; what precedes the damage has been visited.
pub fn parse(bytes: &[u8], mut visit: impl FnMut(Record<'_>)) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        // struct perf_event_header: u32 type, u16 misc, u16 size (of header and body).
        let (Some(kind), Some(misc), Some(size)) =
            (u32_at(rest, 0), u16_at(rest, 4), u16_at(rest, 6))
        else {
            return false;
        };
        let size = usize::from(size);
        if size < HEADER_BYTES || size > rest.len() {
            return false;
        }
        let body = &rest[HEADER_BYTES..size];
        match kind {
            RECORD_SAMPLE => visit(Record::Sample(body)),
            // u64 id, u64 lost.
            RECORD_LOST => match u64_at(body, 8) {
                Some(lost) => visit(Record::Lost(lost)),
                None => return false,
            },
            kind => visit(Record::Other { kind, misc, body }),
        }
        rest = &rest[size..];
    }
    true
}

/// A page fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultSample {
    /// CLOCK_MONOTONIC, in ns.
    pub time_ns: u64,
    /// Process, in our pid namespace; 0 for one outside of it, -1 for one that is exiting.
    pub pid: i32,
    /// Thread; as above.
    pub tid: i32,
    /// The faulting byte address, not rounded to the page.
    pub address: u64,
}

/// The id that page faults have among tracepoints, which count from 1.
pub const PAGE_FAULT: u32 = 0;

/// A sample of a tracepoint, or of [`PAGE_FAULT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracepointSample<'a> {
    /// CLOCK_MONOTONIC, in ns.
    pub time_ns: u64,
    /// Process, in our pid namespace; 0 for one outside of it, -1 for one that is exiting.
    pub pid: i32,
    /// Thread; as above.
    pub tid: i32,
    /// The tracepoint's id ([`crate::tracefs::EventFormat::id`]).
    pub event_id: u32,
    /// Of a page fault, the faulting byte address; of a tracepoint, nothing.
    pub address: u64,
    /// The event's fields, at the offsets of its format.
    pub raw: &'a [u8],
}

/// Decodes a sample of PERF_SAMPLE_TID | TIME | ADDR.
pub fn fault_sample(body: &[u8]) -> Option<FaultSample> {
    Some(FaultSample {
        pid: u32_at(body, 0)? as i32,
        tid: u32_at(body, 4)? as i32,
        time_ns: u64_at(body, 8)?,
        address: u64_at(body, 16)?,
    })
}

/// Decodes a sample of PERF_SAMPLE_TID | TIME | ADDR | RAW.
pub fn tracepoint_sample(body: &[u8]) -> Option<TracepointSample<'_>> {
    let len = u32_at(body, 24)? as usize;
    let raw = body.get(28..)?.get(..len)?;
    Some(TracepointSample {
        pid: u32_at(body, 0)? as i32,
        tid: u32_at(body, 4)? as i32,
        time_ns: u64_at(body, 8)?,
        address: u64_at(body, 16)?,
        // Every trace event begins with its `unsigned short common_type`; a software event has zeroes instead.
        event_id: u32::from(u16_at(raw, 0)?),
        raw,
    })
}

pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine::Lcg;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let size = u16::try_from(HEADER_BYTES + body.len()).expect("small");
        [&kind.to_ne_bytes()[..], &[0, 0], &size.to_ne_bytes(), body].concat()
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn samples_lost_and_others_in_order() {
        let mut ids = 7_u32.to_ne_bytes().to_vec();
        ids.extend(8_u32.to_ne_bytes());
        let fault = [ids.clone(), words(&[1000, 0xabc])].concat();
        let bytes = [
            record(9, &fault),
            record(2, &words(&[1, 5])),
            record(1, &[]),
        ]
        .concat();
        let mut seen = Vec::new();
        assert!(parse(&bytes, |record| seen.push(match record {
            Record::Sample(body) => fault_sample(body).expect("complete").address,
            Record::Lost(lost) => lost,
            Record::Other { kind, .. } => u64::from(kind),
        })));
        assert_eq!(seen, [0xabc, 5, 1]);
        assert_eq!(
            fault_sample(&fault),
            Some(FaultSample {
                time_ns: 1000,
                pid: 7,
                tid: 8,
                address: 0xabc
            })
        );
        assert_eq!(fault_sample(&fault[..23]), None);
    }

    #[test]
    fn tracepoint_raw_is_bounded_by_its_length() {
        let mut body = words(&[0, 9, 0xabc]);
        body.extend(4_u32.to_ne_bytes());
        body.extend(600_u16.to_ne_bytes());
        body.extend([1, 2, 3, 4]);
        let sample = tracepoint_sample(&body).expect("complete");
        assert_eq!(
            (sample.event_id, sample.raw.len(), sample.address),
            (600, 4, 0xabc)
        );
        body[24] = 200;
        assert_eq!(tracepoint_sample(&body), None);
    }

    #[test]
    fn truncated_and_malformed_records_stop() {
        let bytes = [record(1, &[0; 8]), record(9, &[0; 24])].concat();
        for end in 0..bytes.len() {
            let mut count = 0;
            let whole = parse(&bytes[..end], |_| count += 1);
            assert_eq!(
                (whole, count),
                (end == 0 || end == 16, usize::from(end >= 16)),
                "{end}"
            );
        }
        // A size below the header's would never move on.
        assert!(!parse(&[0; 16], |_| {}));
        assert!(!parse(&record(2, &[0; 8]), |_| {}));
    }

    #[test]
    fn unread_ranges_agree_with_a_naive_oracle() {
        let mut random = Lcg(7);
        for _ in 0..10_000 {
            let size = 1_usize << (random.below(12) + 3);
            let tail = random.below(1 << 31);
            let count = random.below(size as u64 + 8);
            let oracle: Vec<usize> = (0..count)
                .map(|at| (tail.wrapping_add(at) % size as u64) as usize)
                .collect();
            match unread(tail.wrapping_add(count), tail, size) {
                Some((first, second)) => {
                    assert_eq!(first.chain(second).collect::<Vec<_>>(), oracle)
                }
                None => assert!(count > size as u64),
            }
        }
        assert_eq!(unread(0, 1, 4096), None);
        assert_eq!(unread(0, 0, 1000), None);
        assert_eq!(unread(0, 0, 0), None);
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut random = Lcg(42);
        for round in 0..20_000 {
            let len = random.below(256) as usize;
            let mut bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
            // Half of them start with a plausible header, so that the bodies are reached too.
            if round % 2 == 0 && len >= 8 {
                let kind = if round % 4 == 0 {
                    RECORD_SAMPLE
                } else {
                    RECORD_LOST
                };
                bytes[..4].copy_from_slice(&kind.to_ne_bytes());
                bytes[6..8].copy_from_slice(&(len as u16).to_ne_bytes());
            }
            let mut visited = 0;
            parse(&bytes, |record| {
                visited += 1;
                if let Record::Sample(body) = record {
                    let _ = (fault_sample(body), tracepoint_sample(body));
                }
            });
            assert!(visited <= len / HEADER_BYTES);
        }
    }
}
