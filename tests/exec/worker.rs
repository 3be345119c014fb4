//! The command that `tenure exec` runs in its tests: processes of every kind that write down when they were alive.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use tenure::{Clock, SystemClock, Time};

/// Where they write to, and what they are: `DIRECTORY:KIND`.
const WORKER: &str = "TENURE_COMMAND_WORKER";
const EVERY: Duration = Duration::from_millis(4);
/// Nobody stays longer, whatever a test forgets.
const LONGEST: Duration = Duration::from_secs(120);

/// What a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only itself.
    Single,
    /// Itself, a child, and a daemon in a session of its own whose parent is gone.
    Tree,
    /// Itself, and three that get away all the time: each starts another one in a session of its own, and ends.
    Fountain,
    /// One of those.
    Hopper,
}

impl Kind {
    const ALL: [(Kind, &'static str); 4] = [
        (Kind::Single, "single"),
        (Kind::Tree, "tree"),
        (Kind::Fountain, "fountain"),
        (Kind::Hopper, "hopper"),
    ];

    fn name(self) -> &'static str {
        Kind::ALL.iter().find(|(kind, _)| *kind == self).unwrap().1
    }
}

/// The words that make this program a worker, for behind the `--` of `tenure exec`. A deaf one ignores SIGTERM.
pub(crate) fn words(directory: &Path, kind: Kind, deaf: bool) -> Vec<String> {
    let this = std::env::current_exe().unwrap();
    let trap = if deaf { "trap '' TERM; " } else { "" };
    let script = format!("{trap}exec {}", this.display());
    let setting = format!("{WORKER}={}:{}", directory.display(), kind.name());
    ["env", &setting, "sh", "-c", &script].map(str::to_owned).to_vec()
}

/// Runs the worker that this process is, if it is one.
pub(crate) fn main() -> Option<ExitCode> {
    let word = std::env::var(WORKER).ok()?;
    let (directory, kind) = word.rsplit_once(':').unwrap();
    let kind = Kind::ALL.iter().find(|(_, name)| *name == kind).unwrap().0;
    let begun = SystemClock::new().now();
    let stamps = Stamps::open(directory.as_ref());
    let away = &["setsid", "--fork"];
    match kind {
        Kind::Single => {}
        Kind::Tree => {
            again(directory, Kind::Single, &["env"]);
            again(directory, Kind::Single, away);
        }
        Kind::Fountain => (0..3).for_each(|_| again(directory, Kind::Hopper, away)),
        Kind::Hopper => {
            stamps.stamp();
            again(directory, Kind::Hopper, away);
            return Some(ExitCode::SUCCESS);
        }
    }
    while stamps.stamp().saturating_since(begun) < LONGEST {
        std::thread::sleep(EVERY);
    }
    Some(ExitCode::FAILURE)
}

#[allow(clippy::zombie_processes, reason = "they outlive this one, or die with it")]
fn again(directory: &str, kind: Kind, by: &[&str]) {
    let mut command = Command::new(by[0]);
    command.args(&by[1..]).arg(std::env::current_exe().unwrap());
    command.env(WORKER, format!("{directory}:{}", kind.name())).spawn().unwrap();
}

/// The first and the last moment at which this process was alive, in a file of its own.
struct Stamps(File, Time);

impl Stamps {
    fn open(directory: &Path) -> Stamps {
        let fence = std::env::var("TENURE_FENCE").unwrap_or_else(|_| "0".to_owned());
        let name = format!(
            "{fence}-{}-{}",
            std::env::var("TENURE_ELECTION").unwrap_or_default(),
            std::process::id()
        );
        let file = File::create(directory.join(name)).unwrap();
        let first = SystemClock::new().now();
        file.write_all_at(&first.as_nanos().to_ne_bytes(), 0).unwrap();
        Stamps(file, first)
    }

    fn stamp(&self) -> Time {
        let now = SystemClock::new().now();
        self.0.write_all_at(&now.as_nanos().to_ne_bytes(), 8).unwrap();
        now.max(self.1)
    }
}

/// The workers of a directory that are still there.
pub(crate) fn survivors(directory: &Path) -> Vec<u32> {
    let mark = format!("{WORKER}={}:", directory.display());
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let has_mark = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|setting| setting.starts_with(mark.as_bytes()))
    };
    processes.filter(has_mark).collect()
}

/// When the processes of one term were alive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) fence: i64,
    pub(crate) first: Time,
    pub(crate) last: Time,
    pub(crate) processes: usize,
}

/// The lives of an election's terms, by fence.
pub(crate) fn lives(directory: &Path, election: &str) -> Vec<Life> {
    let mut lives: Vec<Life> = Vec::new();
    let mut names: Vec<PathBuf> = directory.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for path in names {
        let name = path.file_name().unwrap().to_str().unwrap();
        let (fence, rest) = name.split_once('-').unwrap();
        if rest.rsplit_once('-').unwrap().0 != election {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let Some(times) = bytes.get(..16) else { continue };
        let time = |at: usize| Time::from_nanos(u64::from_ne_bytes(times[at..at + 8].try_into().unwrap()));
        let (fence, first, last) = (fence.parse().unwrap(), time(0), time(8));
        match lives.iter_mut().find(|life| life.fence == fence) {
            Some(life) => {
                life.first = life.first.min(first);
                life.last = life.last.max(last);
                life.processes += 1;
            }
            None => lives.push(Life { fence, first, last, processes: 1 }),
        }
    }
    lives.sort_by_key(|life| life.fence);
    lives
}
