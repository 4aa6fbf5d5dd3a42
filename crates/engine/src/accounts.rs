//! Whom what a user takes counts for. A user may be given ids for what runs in user namespaces, as containers do, commonly 65,536 of
//! them (/etc/subuid): all of these have the bounds of one user together. That gives nobody any right; who made the user namespace
//! that a process is in has them all.

use prepage_kernel::user_namespace;
use std::collections::{BTreeMap, HashMap};
use std::sync::{PoisonError, RwLock};

/// Ranges of user ids by the first of each: the last one, and the user that they count for.
type Accounts = BTreeMap<u32, (u32, u32)>;

static ACCOUNTS: RwLock<Accounts> = RwLock::new(Accounts::new());

/// Reads who was given which ids. Where that cannot be read, each id counts for itself.
pub fn read() {
    let text = |path: &str| {
        let bytes = std::fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let accounts = parse(&text("/etc/subuid"), &text("/etc/passwd"));
    *ACCOUNTS.write().unwrap_or_else(PoisonError::into_inner) = accounts;
}

/// The user for whom what this one takes counts, as it was read last: its own, but for ids that were given to somebody.
pub fn accountable(uid: u32) -> u32 {
    let accounts = ACCOUNTS.read().unwrap_or_else(PoisonError::into_inner);
    look_up(&accounts, uid)
}

/// The user whose process this is, which runs as user `uid`: that one, or who made the user namespace that it is in, as a user's
/// container without root is, and so may do anything with it (user_namespaces(7)). What is in one that root made is its own
/// user's: that root has rights there says nothing of whose it is.
pub fn owner_of(pid: i32, uid: u32) -> u32 {
    let made_by = user_namespace::owner(pid).ok().flatten();
    made_by.filter(|&owner| owner != 0).unwrap_or(uid)
}

fn look_up(accounts: &Accounts, uid: u32) -> u32 {
    match accounts.range(..=uid).next_back() {
        Some((_, &(last, account))) if uid <= last => account,
        _ => uid,
    }
}

/// From lines `USER:FIRST:COUNT`, the user by name or id. What is none is passed over. Root has no bounds, but what it gave ids to
/// has: those count for the first of them, and so do those of a user whom this machine's file does not name.
fn parse(subuid: &str, passwd: &str) -> Accounts {
    let users = passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        Some((fields.next()?, fields.nth(1)?.parse().ok()?))
    });
    let users: HashMap<&str, u32> = users.collect();
    let mut firsts = HashMap::new();
    let mut accounts = Accounts::new();
    for line in subuid.lines() {
        let mut fields = line.trim().split(':');
        let number = |text: Option<&str>| text?.parse::<u32>().ok().filter(|&number| number > 0);
        let user = fields.next().unwrap_or_default();
        let (Some(first), Some(count)) = (number(fields.next()), number(fields.next())) else {
            continue;
        };
        let uid = users.get(user).copied().or_else(|| user.parse().ok());
        let account = match uid {
            None | Some(0) => *firsts.entry(user).or_insert(first),
            Some(uid) => uid,
        };
        let last = first.saturating_add(count - 1);
        accounts.entry(first).or_insert((last, account));
    }
    accounts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_to_a_user_counts_for_that_user_alone() {
        let subuid = "# ids\n\
            alice:100000:65536\n\
            1001:165536:65536\n\
            nobody's:300000\n\
            nobody's:x:5\n\
            ghost:400000:10\n\
            ghost:500000:10\n\
            root:1000000:10\n\
            0:2000000:10\n\
            alice:0:100\n\
            alice:3000000:0\n\
            alice:4294967290:100\n";
        let passwd = "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\nbroken\n";
        let accounts = parse(subuid, passwd);
        for (uid, account) in [
            (0, 0),
            (50, 50),
            (1000, 1000),
            (99_999, 99_999),
            (100_000, 1000),
            (165_535, 1000),
            (165_536, 1001),
            (231_071, 1001),
            (231_072, 231_072),
            (300_000, 300_000),
            (400_009, 400_000),
            (400_010, 400_010),
            (500_001, 400_000),
            (1_000_009, 1_000_000),
            (2_000_009, 2_000_000),
            (3_000_000, 3_000_000),
            (u32::MAX, 1000),
        ] {
            assert_eq!(look_up(&accounts, uid), account, "{uid}");
        }
        assert_eq!(parse("", ""), Accounts::new());
    }
}
