//! Messages that wait for their answers. How long a call takes is up to who makes it, so everything else that happened is looked at
//! between any two that take long.

use std::collections::VecDeque;

/// At most one message of each connection: no more is read of it meanwhile.
#[derive(Debug, Default)]
pub(super) struct Unanswered {
    messages: VecDeque<Message>,
    /// Whose message was answered last.
    last: Option<u32>,
}

/// A message, and where its answer goes.
#[derive(Debug)]
pub(super) struct Message {
    /// The connection.
    pub number: u32,
    /// The user that it counts for.
    pub owner: u32,
    /// What it says.
    pub bytes: Vec<u8>,
}

impl Unanswered {
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether one of this connection waits.
    pub fn holds(&self, number: u32) -> bool {
        self.messages.iter().any(|m| m.number == number)
    }

    pub fn push(&mut self, message: Message) {
        self.messages.push_back(message);
    }

    /// The next: the oldest of another user than the last one's, if there is one, so that nobody waits for many of one user's.
    pub fn pop(&mut self) -> Option<Message> {
        let of_other = |m: &Message| Some(m.owner) != self.last;
        let at = self.messages.iter().position(of_other).unwrap_or(0);
        let next = self.messages.remove(at)?;
        self.last = Some(next.owner);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_users_many_messages_hold_up_anothers_for_one_of_them() {
        let mut unanswered = Unanswered::default();
        let message = |owner, number| Message {
            number,
            owner,
            bytes: Vec::new(),
        };
        (1..=3).for_each(|number| unanswered.push(message(1000, number)));
        let mut next = || unanswered.pop().map(|m| m.number);
        assert_eq!(next(), Some(1));
        unanswered.push(message(1001, 4));
        unanswered.push(message(1000, 1));
        assert!(unanswered.holds(4) && !unanswered.holds(5));
        let order: Vec<u32> = std::iter::from_fn(|| unanswered.pop().map(|m| m.number)).collect();
        assert_eq!(order, [4, 2, 3, 1]);
        assert!(unanswered.is_empty());
    }
}
