//! `tenure resign`: an operator makes the leader step down.
//!
//! The row becomes that of another term, which nobody uses. The leader's next renewal no longer matches, and its term
//! ends; it may go on until then, so the row is not marked as released and the candidates wait the lease out, as they
//! wait out any other that they see.

use std::io::{self, BufRead, IsTerminal, Write as _};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Args;
use tenure::{AnyStore, Bid, Config, Fence, Identity, Lease, Observation, Store, StoreError};

use crate::failure::{FAILED, Failure, REFUSED};
use crate::options::{Bound, StoreOptions, check_names};
use crate::output::{WIDTH, printable, say, short, wrapped};
use crate::view::{OPERATOR, State};

/// How often to try where the leader renews at the same moment.
const TRIES: usize = 10;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure resign --election invoice-reconciler
  tenure resign --election invoice-reconciler --fence 41 --yes

The leader steps down when its next renewal fails, at the latest when its term
would have ended. Nobody leads until one lease has passed from now; then any
candidate may, the one that stepped down included: stop that one first if it
shall not. To hand over without a gap, end the leader itself (SIGTERM, or
`resign()` in the program): it releases the lease.

Exits with 1 where there is nothing to do: nobody leads, the fence is another,
or the answer was no.")]
pub(crate) struct Resign {
    #[command(flatten)]
    store: StoreOptions,
    /// The election.
    #[arg(long, value_name = "NAME")]
    election: String,
    /// Only the term with this fence, not one that has begun since you looked.
    #[arg(long, value_name = "N", value_parser = fence)]
    fence: Option<Fence>,
    /// Ask nothing. Needed where stdin is no terminal.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    bound: Bound,
}

fn fence(text: &str) -> Result<Fence, String> {
    let number: i64 = text.parse().map_err(|_| "is not a number".to_owned())?;
    Fence::try_from(number).map_err(|error| error.to_string())
}

fn refused(sentence: impl std::fmt::Display) -> Failure {
    Failure::new(REFUSED, sentence)
}

impl Resign {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        check_names([&self.election])?;
        let store = self.store.open()?;
        let (_, first) = self.leader(&store, self.fence)?;
        self.confirm(&first)?;
        let host = rustix::system::uname();
        let user = std::env::var("SUDO_USER").or_else(|_| std::env::var("USER"));
        let user = user.unwrap_or_else(|_| rustix::process::getuid().as_raw().to_string());
        let operator = Identity::generate(&format!("{OPERATOR}{user}@{}", host.nodename().to_string_lossy()))
            .map_err(|error| Failure::new(FAILED, error))?;
        for _ in 0..TRIES {
            // The one that was asked about, and no other.
            let (seen, leader) = self.leader(&store, Some(first.fence()))?;
            let deposed = depose(&store, &operator, (&seen, &leader), self.bound.operation_timeout);
            if let Some(lease) = deposed.map_err(unknown)? {
                return self.tell(&leader, &lease);
            }
        }
        Err(Failure::new(FAILED, "the leader renewed its lease at the same moment each time; try again"))
    }

    /// Whoever leads now, if that is the term that is meant.
    fn leader(&self, store: &AnyStore, wanted: Option<Fence>) -> Result<(Observation, Lease), Failure> {
        let name = printable(&self.election);
        let seen = store.observe(&self.election, self.bound.operation_timeout)?;
        let Some(lease) = seen.lease().cloned() else {
            return Err(refused(format!("nobody has ever led {name:?}"))
                .hint("`tenure status` shows the elections that there are"));
        };
        let (holder, fence) = (printable(lease.holder()), lease.fence());
        if let Some(wanted) = wanted.filter(|wanted| *wanted != fence) {
            return Err(refused(format!(
                "{name:?} has gone on: the fence is {fence}, not {wanted}, held by {holder}"
            ))
            .hint("nothing was changed"));
        }
        match State::of(&lease) {
            State::Leading => Ok((seen, lease)),
            State::Deposed => Err(refused(format!(
                "nobody leads {name:?}: {holder} has made the leader step down, {} are left to wait",
                short(lease.ttl())
            ))),
            State::Released => {
                Err(refused(format!("nobody leads {name:?}: {holder} has released the lease")))
            }
            State::Expired => Err(refused(format!("nobody leads {name:?}: the lease of {holder} is over"))
                .hint("a candidate may take it at its next look")),
        }
    }

    fn confirm(&self, lease: &Lease) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            return Err(refused("nobody can be asked here: stdin is no terminal").hint("--yes means it"));
        }
        let question = format!(
            "{} leads {:?} with fence {}. Make it step down? Nobody leads for about {} then. [y/N]",
            printable(lease.holder()),
            printable(&self.election),
            lease.fence(),
            short(length(lease)),
        );
        let unheard = |error| refused(format!("nobody can be asked here: {error}")).hint("--yes means it");
        let mut stderr = io::stderr();
        write!(stderr, "{} ", wrapped(&question, WIDTH, 0)).and_then(|()| stderr.flush()).map_err(unheard)?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer).map_err(unheard)?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(refused("nothing was changed")),
        }
    }

    fn tell(&self, leader: &Lease, lease: &Lease) -> Result<ExitCode, Failure> {
        let until = humantime::format_rfc3339_seconds(SystemTime::now() + lease.ttl());
        let said = format!(
            "{} (fence {}) steps down at its next renewal. Fence {} is nobody's: nobody leads {:?} for {}, until about \
             {until}; then any candidate may.",
            printable(leader.holder()),
            leader.fence(),
            lease.fence(),
            printable(&self.election),
            short(lease.ttl()),
        );
        say(&wrapped(&said, WIDTH, 0))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// `None`: the row has changed since it was looked at.
fn depose(
    store: &impl Store,
    operator: &Identity,
    (seen, leader): (&Observation, &Lease),
    timeout: Duration,
) -> Result<Option<Lease>, StoreError> {
    let bid = Bid::new(leader.name(), operator.as_str(), length(leader))
        .payload(leader.payload())
        .over(Some(leader.version()))
        .timeline(seen.timeline());
    let answer = store.acquire(&bid, timeout);
    if matches!(answer, Ok(Some(_))) {
        return answer;
    }
    // It may have happened all the same: where no answer came, and where the store asked again after a first one was
    // lost, and found what it had written itself.
    let lease = store.observe(leader.name(), timeout).ok().and_then(Observation::into_lease);
    lease.filter(|lease| lease.held_by(operator.as_str())).map_or(answer, |lease| Ok(Some(lease)))
}

/// Of a change whose answer did not come.
fn unknown(error: StoreError) -> Failure {
    Failure::new(FAILED, error).hint("it may have happened, or still happen: `tenure status` shows it")
}

/// What the leader was promised: not less than that may the candidates wait. Nobody waits for longer than what may be
/// configured, whatever is in the row.
fn length(lease: &Lease) -> Duration {
    lease.length().max(lease.ttl()).min(Config::MAX_LEASE_DURATION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::{MemoryStore, Renewal};

    const SECOND: Duration = Duration::from_secs(1);

    /// Does what it is asked, and says that it does not know; or asks twice, and says what the second answer was.
    #[derive(Debug)]
    struct Deaf(MemoryStore, Second);

    type Second = Option<fn() -> StoreError>;

    impl Store for Deaf {
        fn acquire(&self, bid: &Bid<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
            self.0.acquire(bid, timeout)?;
            match self.1 {
                Some(unknown) => Err(unknown()),
                None => self.0.acquire(bid, timeout),
            }
        }

        fn renew(&self, renewal: &Renewal<'_>, timeout: Duration) -> Result<Option<Lease>, StoreError> {
            self.0.renew(renewal, timeout)
        }

        fn release(
            &self,
            name: &str,
            holder: &str,
            fence: Fence,
            timeout: Duration,
        ) -> Result<(), StoreError> {
            self.0.release(name, holder, fence, timeout)
        }

        fn observe(&self, name: &str, timeout: Duration) -> Result<Observation, StoreError> {
            self.0.observe(name, timeout)
        }
    }

    fn leader(store: &MemoryStore) -> (Observation, Lease) {
        let bid = Bid::new("n", "leader", 10 * SECOND).payload(Some(b"10.0.0.7"));
        let lease = store.acquire(&bid, SECOND).unwrap().unwrap();
        (store.observe("n", SECOND).unwrap(), lease)
    }

    #[test]
    fn a_deposed_leaders_lease_is_waited_out_by_an_ordinary_term() {
        let store = MemoryStore::new();
        let (seen, before) = leader(&store);
        let operator = Identity::generate("operator-x@y").unwrap();
        let lease = depose(&store, &operator, (&seen, &before), SECOND).unwrap().unwrap();
        assert!(lease.held_by(operator.as_str()) && lease.fence() > before.fence());
        assert!(!lease.is_released() && lease.length() == before.length(), "{lease:?}");
        assert_eq!(lease.payload(), before.payload());
        let other = Identity::generate("operator-x@y").unwrap();
        let again = depose(&store, &other, (&seen, &before), SECOND).unwrap();
        assert_eq!(again, None, "what was looked at is not there any more");
    }

    #[test]
    fn an_answer_that_was_lost_is_looked_for() {
        let second: [Second; 2] = [Some(|| StoreError::timeout("no answer")), None];
        for second in second {
            let store = MemoryStore::new();
            let (seen, before) = leader(&store);
            let operator = Identity::generate("operator-x@y").unwrap();
            let deaf = Deaf(store.clone(), second);
            let deposed = depose(&deaf, &operator, (&seen, &before), SECOND).unwrap().unwrap();
            assert!(deposed.held_by(operator.as_str()) && deposed.fence() > before.fence());
            let other = Identity::generate("operator-x@y").unwrap();
            let answer = depose(&deaf, &other, (&seen, &before), SECOND);
            assert!(!matches!(answer, Ok(Some(_))), "somebody else's is not ours: {answer:?}");
        }
    }

    #[test]
    fn no_lease_is_longer_than_any_that_may_be_configured() {
        let store = MemoryStore::new();
        let bid = Bid::new("n", "leader", 100 * Config::MAX_LEASE_DURATION);
        assert_eq!(length(&store.acquire(&bid, SECOND).unwrap().unwrap()), Config::MAX_LEASE_DURATION);
    }
}
