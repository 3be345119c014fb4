//! Where the file is: whether it can be used, and is the one that everybody else means.
//!
//! Nothing here opens it. A process that closes any descriptor of a file loses all the locks that it has on it,
//! those of SQLite's own descriptors included.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::error::Failure;

/// Which file it is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) device: u64,
    pub(super) inode: u64,
}

/// Which file is there now; `None` if there is none.
pub(super) fn identity(path: &Path) -> Result<Option<Identity>, Failure> {
    match path.metadata() {
        Ok(file) => Ok(Some(Identity { device: file.dev(), inode: file.ino() })),
        // A part of the path that is no directory.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Err(Failure::fatal("is in a directory that this process may not enter"))
        }
        Err(error) => Err(Failure::retryable(format!("can't be looked at: {error}"))),
    }
}

/// The memory that all who have the file open share, and its inode: without it they would not know of each other. It is
/// beside what a symbolic link leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shared {
    path: PathBuf,
    inode: Option<u64>,
}

impl Shared {
    pub(super) fn beside(path: &Path) -> Shared {
        let mut beside = path.canonicalize().unwrap_or_else(|_| path.to_owned()).into_os_string();
        beside.push("-shm");
        let path = PathBuf::from(beside);
        Shared { inode: inode(&path), path }
    }

    /// Whether it is still there. One that is in use keeps its inode, so nothing else can have that.
    pub(super) fn is_there(&self) -> bool {
        inode(&self.path) == self.inode
    }

    /// Whether this process uses another one in its place, which somebody deleted. SQLite gives that to every further
    /// connection to the file as long as there is one that has it.
    pub(super) fn is_another_in_use(&self) -> bool {
        kernel::maps_another(&self.path, self.inode)
    }
}

fn inode(path: &Path) -> Option<u64> {
    path.metadata().ok().map(|file| file.ino())
}

/// No file: what operations make of it.
pub(super) fn missing(path: &Path) -> Failure {
    match check(path) {
        Err(better) => better,
        Ok(()) => Failure::fatal("does not exist; call ensure_schema()"),
    }
}

/// Whether the file, or its directory where there is no file yet, is what elections need.
pub(super) fn check(path: &Path) -> Result<(), Failure> {
    // Its other two files are beside what a symbolic link leads to.
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let directory = real.parent().unwrap_or(&real);
    let complaint = match directory.metadata() {
        Err(_) => Some(format!("can't be there: there is no directory {}", directory.display())),
        Ok(place) if !place.is_dir() => {
            Some(format!("can't be there: {} is no directory", directory.display()))
        }
        Ok(_) => kernel::network(directory).or_else(|| complaint(&real, directory)),
    };
    complaint.map_or(Ok(()), |complaint| Err(Failure::fatal(complaint)))
}

fn complaint(file: &Path, directory: &Path) -> Option<String> {
    if access(directory, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        let directory = directory.display();
        return Some(format!("needs files beside it, and this process may not create any in {directory}"));
    }
    let found = file.metadata().ok()?;
    if found.is_dir() {
        return Some("is a directory".to_owned());
    }
    if !found.is_file() {
        return Some("is not a plain file".to_owned());
    }
    if access(file, Access::READ_OK | Access::WRITE_OK).is_err() {
        return Some("may not be read and written by this process".to_owned());
    }
    if found.nlink() > 1 {
        let names = found.nlink();
        return Some(format!(
            "has {names} names (hard links): under another one its -wal file would be another"
        ));
    }
    kernel::mounted_by_itself(file, directory)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod kernel {
    use std::path::Path;

    use rustix::fs::{AtFlags, CWD, StatxFlags, statfs, statx};

    /// What statfs(2) says of file systems whose locks or memory may not be those of one host.
    const NETWORKS: [(u32, &str); 23] = [
        (0x0000_6969, "NFS"),
        (0x0000_517b, "SMB"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB 2"),
        (0x0102_1997, "9P"),
        (0x6573_5546, "FUSE, which can't be told from a network"),
        (0x00c3_6400, "Ceph"),
        (0x5346_414f, "AFS"),
        (0x6b41_4653, "AFS"),
        (0x7375_7245, "Coda"),
        (0x0000_564c, "NCP"),
        (0x0bd0_0bd0, "Lustre"),
        (0x4750_4653, "GPFS"),
        (0x7461_636f, "OCFS2"),
        (0x0116_1970, "GFS2"),
        (0x2003_0528, "OrangeFS"),
        (0x786f_4256, "a shared folder of VirtualBox"),
        (0xbacb_acbc, "a shared folder of VMware"),
        (0x7c7c_6673, "a shared folder of Parallels"),
        (0x6a65_6a63, "a shared folder of Docker Desktop"),
        (0x1983_0326, "BeeGFS"),
        (0xaad7_aaea, "PanFS"),
        (0xbeef_dead, "StorNext"),
    ];

    /// What is wrong if the directory is on one of them.
    pub(super) fn network(directory: &Path) -> Option<String> {
        match statfs(directory) {
            // The type is as wide as the machine's words, and signed on some.
            Ok(place) => network_of(place.f_type as u32),
            Err(error) => Some(format!("is on a file system that can't be told: {error}")),
        }
    }

    pub(super) fn network_of(kind: u32) -> Option<String> {
        let (_, network) = NETWORKS.iter().find(|(magic, _)| *magic == kind)?;
        Some(format!("is on {network}: locks and shared memory have to be those of one host"))
    }

    /// Whether a file that was once called `path`, and is not the one with this inode, is in this process's memory.
    pub(super) fn maps_another(path: &Path, inode: Option<u64>) -> bool {
        // What can't be told is none of ours to rely on.
        let Ok(maps) = std::fs::read("/proc/self/maps") else { return true };
        is_another_mapped(&maps, path.as_os_str().as_encoded_bytes(), inode)
    }

    /// Lines of address, rights, offset, device, inode, and the path after spaces.
    pub(super) fn is_another_mapped(maps: &[u8], path: &[u8], inode: Option<u64>) -> bool {
        maps.split(|byte| *byte == b'\n').any(|line| {
            let line = line.strip_suffix(b" (deleted)").unwrap_or(line);
            let Some(before) = line.strip_suffix(path).filter(|before| before.ends_with(b" ")) else {
                return false;
            };
            let fields = String::from_utf8_lossy(before);
            let fields: Vec<&str> = fields.split_whitespace().collect();
            fields.len() == 5 && fields[4].parse().ok() != inode
        })
    }

    /// What is wrong if it is a mount of its own, as a single file that was mounted into a container is.
    pub(super) fn mounted_by_itself(file: &Path, directory: &Path) -> Option<String> {
        // `None` before Linux 5.8: it can't be told there.
        let mount = |path: &Path| {
            let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
            (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(found.stx_mnt_id)
        };
        let complaint = "is mounted by itself: elsewhere its -wal file would be another; mount its directory";
        (mount(file) != mount(directory)).then(|| complaint.to_owned())
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod kernel {
    use std::path::Path;

    pub(super) fn network(_: &Path) -> Option<String> {
        None
    }

    pub(super) fn mounted_by_itself(_: &Path, _: &Path) -> Option<String> {
        None
    }

    pub(super) fn maps_another(_: &Path, _: Option<u64>) -> bool {
        false
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn b29_networks_are_told_by_their_number() {
        let kinds = [(0x6969, "NFS"), (0xff53_4d42, "CIFS"), (0x0102_1997, "9P"), (0x6573_5546, "FUSE")];
        for (kind, name) in kinds {
            let complaint = kernel::network_of(kind).unwrap();
            assert!(complaint.starts_with(&format!("is on {name}")), "{complaint}");
        }
        for kind in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630] {
            let complaint = kernel::network_of(kind);
            assert_eq!(complaint, None, "ext4, XFS, Btrfs, tmpfs and overlay are not: {kind:x}");
        }
        assert_eq!(kernel::network(Path::new("/proc")), None);
        assert!(kernel::network(Path::new("/no/such/place")).unwrap().contains("can't be told"));
    }

    #[test]
    fn memory_that_was_deleted_and_is_in_use_is_told_from_that_which_is_there() {
        let maps = b"7f0-7f1 rw-s 00000000 00:2a 77    /a b/lease.db-shm (deleted)\n\
                     7f2-7f3 r-xp 00000000 08:01 5     /lib/libc.so.6\n7f4-7f5 rw-p 00000000 00:00 0 \n";
        let another = |path: &[u8], inode| kernel::is_another_mapped(maps, path, inode);
        assert!(another(b"/a b/lease.db-shm", Some(78)) && another(b"/a b/lease.db-shm", None));
        assert!(!another(b"/a b/lease.db-shm", Some(77)), "that very one");
        assert!(!another(b"b/lease.db-shm", Some(78)) && !another(b"/c/lease.db-shm", Some(78)));
    }

    #[test]
    fn mounts_are_told_apart() {
        let complaint =
            |file: &str, directory: &str| kernel::mounted_by_itself(Path::new(file), Path::new(directory));
        assert_eq!(complaint("/proc/self/status", "/proc"), None);
        assert!(complaint("/proc", "/").unwrap().contains("mount its directory"));
    }
}
