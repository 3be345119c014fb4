//! What has changed from one look to the next. Knows no store, no clock and no terminal.

use tenure::{Fence, Lease};

use crate::output::{printable, short};
use crate::view::{self, State};

/// Something that happened to an election between two looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The first look.
    Found(Option<Lease>),
    /// Another term; it may be over already.
    NewTerm(Lease),
    Released(Lease),
    Expired(Lease),
    /// An expired or released lease is live again in the same term: the database's clock, or the row, went back.
    Revived(Lease),
    Payload(Lease),
    /// The fence is lower than it was.
    FenceRegressed(Fence, Lease),
    /// There is no row any more.
    Gone(Fence),
}

impl Change {
    /// For `--json`.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Change::Found(_) => "found",
            Change::NewTerm(_) => "new_term",
            Change::Released(_) => "released",
            Change::Expired(_) => "expired",
            Change::Revived(_) => "revived",
            Change::Payload(_) => "payload",
            Change::FenceRegressed(..) => "fence_regressed",
            Change::Gone(_) => "gone",
        }
    }

    pub(crate) fn lease(&self) -> Option<&Lease> {
        match self {
            Change::Found(lease) => lease.as_ref(),
            Change::NewTerm(lease)
            | Change::Released(lease)
            | Change::Expired(lease)
            | Change::Revived(lease)
            | Change::Payload(lease)
            | Change::FenceRegressed(_, lease) => Some(lease),
            Change::Gone(_) => None,
        }
    }

    pub(crate) fn sentence(&self) -> String {
        match self {
            Change::Found(None) => "nobody has ever led".to_owned(),
            Change::Found(Some(lease)) if State::of(lease) == State::Leading => {
                format!("{} leads, {}", who(lease), terms(lease))
            }
            Change::Found(Some(lease)) | Change::NewTerm(lease) if State::of(lease) == State::Deposed => {
                let left = short(lease.ttl());
                format!("the leader was made to step down by {}: nobody leads for {left}", who(lease))
            }
            Change::Found(Some(lease)) => {
                format!("nobody leads; {} was the last, the lease is {}", who(lease), State::of(lease).word())
            }
            Change::NewTerm(lease) => format!("new term: {}, {}", who(lease), terms(lease)),
            Change::Released(lease) => format!("released by {}: nobody leads", who(lease)),
            Change::Expired(lease) if view::is_operators(lease) => {
                format!("the wait after {} is over: anybody may lead", who(lease))
            }
            Change::Expired(lease) => {
                let ago = short(lease.now().saturating_since(lease.expires_at()));
                format!("expired {ago} ago: {} did not renew, nobody leads", who(lease))
            }
            Change::Revived(lease) => {
                format!(
                    "live again: {}, {}; the database's clock or the row went back",
                    who(lease),
                    terms(lease)
                )
            }
            Change::Payload(lease) => match view::payload(lease) {
                Some(payload) => format!("payload of {}: {payload}", who(lease)),
                None => format!("payload of {}: none any more", who(lease)),
            },
            Change::FenceRegressed(from, lease) => format!(
                "FENCE WENT BACK from {from} to {}: an older state of the database, or somebody wrote the row",
                lease.fence()
            ),
            Change::Gone(fence) => format!("THE ROW IS GONE; its fence was {fence}"),
        }
    }
}

fn who(lease: &Lease) -> String {
    format!("{} (fence {})", printable(lease.holder()), lease.fence())
}

fn terms(lease: &Lease) -> String {
    if !State::of(lease).is_live() {
        return "over already".to_owned();
    }
    format!("for {} at a time, {} left", short(lease.length()), short(lease.ttl()))
}

/// What is remembered of an election.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    looked: bool,
    lease: Option<Lease>,
    highest: Option<Fence>,
}

impl Seen {
    /// One that is there now and was not when the others were looked at first.
    pub(crate) fn appeared() -> Seen {
        Seen { looked: true, ..Seen::default() }
    }

    /// What has changed since the last look.
    pub(crate) fn look(&mut self, now: Option<Lease>) -> Vec<Change> {
        let before = self.lease.take();
        let changes = match (before, &now) {
            _ if !self.looked => vec![Change::Found(now.clone())],
            (None, None) => Vec::new(),
            (Some(before), None) => vec![Change::Gone(before.fence())],
            (before, Some(now)) => self.between(before.as_ref(), now),
        };
        self.looked = true;
        self.highest = self.highest.max(now.as_ref().map(Lease::fence));
        self.lease = now;
        changes
    }

    fn between(&self, before: Option<&Lease>, now: &Lease) -> Vec<Change> {
        let mut changes = Vec::new();
        // Compared with the last one, so that it is told once; with the highest where there is no last one.
        let last = before.map(Lease::fence).or(self.highest);
        if let Some(last) = last.filter(|last| now.fence() < *last) {
            changes.push(Change::FenceRegressed(last, now.clone()));
        }
        let same_term =
            before.filter(|before| before.fence() == now.fence() && before.holder() == now.holder());
        let earlier = match same_term {
            Some(before) => State::of(before),
            None => {
                changes.push(Change::NewTerm(now.clone()));
                if State::of(now).is_live() { State::of(now) } else { State::Leading }
            }
        };
        if same_term.is_some_and(|before| before.payload() != now.payload()) {
            changes.push(Change::Payload(now.clone()));
        }
        match (earlier, State::of(now)) {
            (earlier, state) if earlier == state => {}
            (_, State::Released) => changes.push(Change::Released(now.clone())),
            (_, State::Expired) => changes.push(Change::Expired(now.clone())),
            (_, State::Leading | State::Deposed) => changes.push(Change::Revived(now.clone())),
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::{deposed, lease, released, times};

    fn words(seen: &mut Seen, now: Option<Lease>) -> Vec<&'static str> {
        seen.look(now).iter().map(Change::word).collect()
    }

    #[test]
    fn each_change_is_told_once() {
        let mut seen = Seen::default();
        assert_eq!(words(&mut seen, None), ["found"]);
        assert_eq!(words(&mut seen, None), [""; 0]);
        assert_eq!(words(&mut seen, Some(lease(1, 2))), ["new_term"]);
        assert_eq!(words(&mut seen, Some(lease(1, 4))), [""; 0], "renewals are no news");
        assert_eq!(words(&mut seen, Some(lease(1, 4).with_payload(Some(vec![1])))), ["payload"]);
        assert_eq!(words(&mut seen, Some(lease(1, 15).with_payload(Some(vec![1])))), ["expired"]);
        assert_eq!(words(&mut seen, Some(lease(1, 16).with_payload(Some(vec![1])))), [""; 0]);
        assert_eq!(words(&mut seen, Some(lease(1, 16))), ["payload"]);
        assert_eq!(words(&mut seen, Some(lease(1, 6))), ["revived"]);
        assert_eq!(words(&mut seen, Some(lease(2, 16))), ["new_term", "expired"], "a term nobody saw live");
        assert_eq!(words(&mut seen, Some(released(2))), ["released"], "late, but on purpose");
        assert_eq!(words(&mut seen, Some(released(3))), ["new_term", "released"]);
        assert_eq!(words(&mut seen, None), ["gone"]);
        assert_eq!(words(&mut seen, None), [""; 0]);
        assert_eq!(
            words(&mut seen, Some(lease(2, 1))),
            ["fence_regressed", "new_term"],
            "though it was gone"
        );
        assert_eq!(words(&mut seen, Some(lease(2, 2))), [""; 0]);
        assert_eq!(words(&mut seen, Some(lease(1, 2))), ["fence_regressed", "new_term"]);
        assert_eq!(words(&mut seen, Some(lease(4, 2))), ["new_term"]);
        let foreign = Lease::new("n", "x", lease(4, 2).fence(), times(&lease(4, 2)));
        assert_eq!(words(&mut seen, Some(foreign)), ["new_term"], "the same fence in another hand");
        assert_eq!(words(&mut Seen::appeared(), Some(lease(1, 1))), ["new_term"]);
    }

    #[test]
    fn a_deposed_leader_is_told_from_a_new_one() {
        let mut seen = Seen::default();
        words(&mut seen, Some(lease(1, 2)));
        let operator = |age| deposed(2, age);
        let deposed = seen.look(Some(operator(4)));
        let said =
            "the leader was made to step down by operator-alice@web-0-1f (fence 2): nobody leads for 11s";
        assert_eq!(deposed.iter().map(Change::sentence).collect::<Vec<_>>(), [said]);
        let over = seen.look(Some(operator(15)));
        let said = "the wait after operator-alice@web-0-1f (fence 2) is over: anybody may lead";
        assert_eq!(over.iter().map(Change::sentence).collect::<Vec<_>>(), [said]);
        assert_eq!(Seen::default().look(Some(operator(4)))[0].word(), "found");
    }

    #[test]
    fn sentences_say_who_and_what_follows() {
        let said = |change: Change| change.sentence();
        assert_eq!(said(Change::Found(None)), "nobody has ever led");
        let found = "h1 (fence 1) leads, for 15s at a time, 11s left";
        assert_eq!(said(Change::Found(Some(lease(1, 4)))), found);
        let last = "nobody leads; h1 (fence 1) was the last, the lease is released";
        assert_eq!(said(Change::Found(Some(released(1)))), last);
        let expired = "expired 2s ago: h1 (fence 1) did not renew, nobody leads";
        assert_eq!(said(Change::Expired(lease(1, 17))), expired);
        assert_eq!(said(Change::NewTerm(released(2))), "new term: h2 (fence 2), over already");
        let hostile = lease(1, 4).with_payload(Some(b"\x1b[2J".to_vec()));
        assert_eq!(said(Change::Payload(hostile)), "payload of h1 (fence 1): \\u{1b}[2J");
        assert!(said(Change::FenceRegressed(lease(9, 1).fence(), lease(7, 1))).contains("from 9 to 7"));
    }
}
