//! The clock that the leases of a file are measured with: the host's boot clock, and which boot it counts from.
//!
//! All processes of a host share both, and no step of the wall clock moves either. What looks like another boot
//! must be one, or two could lead: a lease of an earlier boot is taken over at once. So whatever a container
//! puts in the place of the kernel's own word is refused.

use crate::lease::Timestamp;
use crate::store::StoreError;
use crate::time::{Clock, SystemClock};

#[derive(Clone, Debug)]
pub(super) struct Boot {
    id: String,
}

impl Boot {
    /// The boot that this process lives in. It does not survive it, so the answer stays true.
    pub(super) fn current() -> Result<Boot, StoreError> {
        Ok(Boot { id: kernel::boot_id(kernel::BOOT_ID, kernel::SHIFTS)? })
    }

    #[cfg(test)]
    pub(super) fn named(id: &str) -> Boot {
        Boot { id: id.to_owned() }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Microseconds since then.
    pub(super) fn now(&self) -> Timestamp {
        let micros = SystemClock::new().now().as_nanos() / 1_000;
        Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod kernel {
    use std::io::ErrorKind;

    use rustix::fs::{PROC_SUPER_MAGIC, statfs};

    use super::{StoreError, refused};

    pub(super) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
    /// How far the clocks of this process are shifted against the host's. Missing in kernels that can't shift them.
    pub(super) const SHIFTS: &str = "/proc/self/timens_offsets";

    pub(super) fn boot_id(boot_id: &str, shifts: &str) -> Result<String, StoreError> {
        let id = std::fs::read_to_string(boot_id)
            .map_err(|error| refused(&format!("{boot_id} can't be read")).with_source(error))?;
        // systemd-nspawn mounts a file of its own there, so that each container has its own boot.
        if !statfs(boot_id).is_ok_and(|place| place.f_type == PROC_SUPER_MAGIC) {
            return Err(refused(&format!("{boot_id} is not the kernel's own")));
        }
        let shifted = match std::fs::read_to_string(shifts) {
            Ok(text) => shifts_boot_clock(&text),
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(refused(&format!("{shifts} can't be read")).with_source(error)),
        };
        if shifted {
            return Err(refused("the boot clock is shifted in this time namespace"));
        }
        Ok(id.trim().to_owned())
    }

    /// Lines of a clock's name, seconds and nanoseconds.
    pub(super) fn shifts_boot_clock(shifts: &str) -> bool {
        let boot_clock = shifts.lines().filter_map(|line| line.trim().strip_prefix("boottime"));
        boot_clock.flat_map(str::split_whitespace).any(|part| part != "0")
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod kernel {
    use super::{StoreError, refused};

    pub(super) const BOOT_ID: &str = "";
    pub(super) const SHIFTS: &str = "";

    pub(super) fn boot_id(_: &str, _: &str) -> Result<String, StoreError> {
        Err(refused("this system does not tell one boot from another"))
    }
}

fn refused(why: &str) -> StoreError {
    StoreError::fatal(format!(
        "SQLite can't carry elections here: {why}, so a lease could not be told from one before a reboot"
    ))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_boot_is_the_kernels_and_the_clock_counts_from_it() {
        let boot = Boot::current().unwrap();
        assert_eq!(boot.id().len(), 36, "{boot:?}");
        assert_eq!(boot.id(), Boot::current().unwrap().id());
        let micros = || i64::try_from(SystemClock::new().now().as_nanos() / 1_000).unwrap();
        let (before, now, after) = (micros(), boot.now().as_micros(), micros());
        assert!(before <= now && now <= after, "{before} {now} {after}");
    }

    #[test]
    fn what_a_container_puts_in_the_place_of_the_boot_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let refused = |boot_id: &str, shifts: &str, why: &str| {
            let error = kernel::boot_id(boot_id, shifts).unwrap_err();
            assert!(error.is_fatal() && error.to_string().contains(why), "{error}");
        };
        refused(&file("boot_id", "6d9d5f08\n"), kernel::SHIFTS, "not the kernel's own");
        refused("/no/such/file", kernel::SHIFTS, "can't be read");
        refused(kernel::BOOT_ID, &file("offsets", "boottime 60 0\n"), "is shifted");
        refused(kernel::BOOT_ID, directory.path().to_str().unwrap(), "can't be read");
        assert!(
            kernel::boot_id(kernel::BOOT_ID, "/no/such/file").is_ok(),
            "a kernel without time namespaces"
        );
    }

    #[test]
    fn a_shifted_boot_clock_is_recognised() {
        let shifts = kernel::shifts_boot_clock;
        assert!(!shifts("monotonic           0         0\nboottime            0         0\n"));
        assert!(!shifts("monotonic           7         0\nboottime            0         0\n"));
        assert!(!shifts(""), "a kernel without time namespaces");
        assert!(shifts("monotonic           0         0\nboottime        86400         0\n"));
        assert!(shifts("monotonic           0         0\nboottime            0       500\n"));
        assert!(shifts("boottime -1 0"));
    }
}
