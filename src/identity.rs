//! Who a participant is: a label for people, and a random part that makes sure that it never was before.

use std::fmt;
use std::sync::Arc;

/// Random bytes in an identity.
const RANDOM_BYTES: usize = 16;

/// The longest label, in bytes.
pub(crate) const MAX_LABEL_LEN: usize = 128;

/// The identity of one participant in one run of a process: `label-<random>`, the holder of its leases (rule 11).
///
/// The random part is 128 bits from the operating system, in hexadecimal. It is never optional: two processes
/// with the same label, or a restarted one, are different participants and cannot continue each other's lease.
/// Clones are cheap and equal.
///
/// ```
/// use tenure::Identity;
///
/// let identity = Identity::generate("web-0")?;
/// assert!(identity.as_str().starts_with("web-0-"));
/// assert_ne!(identity, Identity::generate("web-0")?);
/// # Ok::<(), tenure::IdentityError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Identity(Arc<str>);

impl Identity {
    /// The longest identity, in bytes: what a store's holder column must have room for.
    pub const MAX_LEN: usize = MAX_LABEL_LEN + 1 + 2 * RANDOM_BYTES;

    /// A new identity with this label. A label that [`Config`](crate::Config) would refuse is made to fit: cut to
    /// `Config::MAX_LABEL_LEN` bytes, NUL replaced by `_`.
    ///
    /// Blocks only where the operating system has no random numbers yet, early at boot.
    ///
    /// # Errors
    /// The operating system gave no random numbers.
    pub fn generate(label: &str) -> Result<Identity, IdentityError> {
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random).map_err(IdentityError::new)?;
        let label = cut(label, MAX_LABEL_LEN).replace('\0', "_");
        Ok(Identity(format!("{label}-{:032x}", u128::from_be_bytes(random)).into()))
    }

    /// The identity as it is written into the lease.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Identity {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.0).finish()
    }
}

/// The operating system gave no random numbers, so no identity could be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityError(String);

impl IdentityError {
    pub(crate) fn new(why: impl fmt::Display) -> IdentityError {
        IdentityError(why.to_string())
    }
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no random numbers for an identity: {}", self.0)
    }
}

impl std::error::Error for IdentityError {}

/// `host-pid`, fit to be a label whatever the host is called.
pub(crate) fn default_label() -> String {
    let host = rustix::system::uname();
    label_for(&host.nodename().to_string_lossy(), std::process::id())
}

fn label_for(host: &str, pid: u32) -> String {
    let host = if host.is_empty() { "host" } else { host };
    let host: String = host.chars().map(|c| if c.is_control() { '_' } else { c }).collect();
    let pid = format!("-{pid}");
    let mut label = cut(&host, MAX_LABEL_LEN - pid.len()).to_owned();
    label.push_str(&pid);
    label
}

/// The longest beginning of `text` that has at most `max` bytes and ends between two characters.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::collections::HashSet;

    #[test]
    fn rule_11_identities_never_repeat_b15() {
        let all: HashSet<_> = (0..1_000).map(|_| Identity::generate("web-0").unwrap()).collect();
        assert_eq!(all.len(), 1_000, "the same label, a different participant");
        for identity in &all {
            let random = identity.as_str().strip_prefix("web-0-").unwrap();
            assert_eq!(random.len(), 32, "128 bits");
            assert!(random.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase()), "{random}");
        }
        // Every digit of the random part moves: none of it is a constant or a counter.
        for at in "web-0-".len().."web-0-".len() + 32 {
            let digits: HashSet<_> = all.iter().map(|i| i.as_str().as_bytes()[at]).collect();
            assert_eq!(digits.len(), 16, "digit {at}");
        }
    }

    #[test]
    fn an_identity_always_fits() {
        let longest = Identity::generate(&"é".repeat(1_000)).unwrap();
        assert_eq!(longest.as_str().len(), Identity::MAX_LEN);
        let odd = Identity::generate(&format!("a{}", "é".repeat(1_000))).unwrap();
        assert_eq!(odd.as_str().len(), Identity::MAX_LEN - 1, "cut between characters");
        assert!(Identity::generate("a\0b").unwrap().as_str().starts_with("a_b-"));
        assert!(Identity::generate("").unwrap().as_str().starts_with('-'));
    }

    #[test]
    fn the_default_label_is_host_and_pid_whatever_the_host_is_called() {
        assert!(default_label().ends_with(&format!("-{}", std::process::id())));
        assert_eq!(label_for("web-0", 7), "web-0-7");
        assert_eq!(label_for("", 7), "host-7");
        assert_eq!(label_for("a\0b\nc\u{85}d", 7), "a_b_c_d-7");
        let long = label_for(&"日".repeat(500), u32::MAX);
        assert!(long.len() <= Config::MAX_LABEL_LEN && long.ends_with("-4294967295"), "{long}");
        assert!(Config::builder("x").label(long).build().is_ok());
    }

    #[test]
    fn display_pads_and_debug_names_the_type() {
        let identity = Identity::generate("w").unwrap();
        assert_eq!(identity.to_string(), identity.as_str());
        assert_eq!(identity.as_ref(), identity.as_str());
        assert!(format!("{identity:?}").starts_with("Identity(\"w-"));
        assert!(format!("{identity:>40}").starts_with(' '));
    }
}
