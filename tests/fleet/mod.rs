//! What the tests with real processes share: a database for each test and a way to it, the nodes of one election, and
//! the judges of what they have said.
#![allow(dead_code, unused_imports, reason = "each program of tests uses its own part")]

pub(crate) mod clock;
pub(crate) mod figures;
pub(crate) mod ground;
pub(crate) mod history;
pub(crate) mod line;
pub(crate) mod node;
pub(crate) mod profile;
pub(crate) mod rows;
pub(crate) mod stillness;
pub(crate) mod trials;

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use tenure_testground::{Process, await_until, descriptors, threads};

pub(crate) use self::ground::{Ground, RowLock, Way};

use self::history::{AtLeast, Story};
use self::line::{Line, Stamp, now};
use self::node::Options;
use self::profile::Profile;
use self::rows::Row;
use self::stillness::promised;

/// Long enough for whatever has no bound of its own, on any machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A node as its parent sees it.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) process: Process,
    pub(crate) story: Story,
    /// Not waited for yet: its process id is still its own.
    running: bool,
}

/// The nodes of one election. A node that has ended stays in the list, since its story does.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pub(crate) nodes: Vec<Node>,
}

/// What a node that panicked ends with; it panics only over what must never be.
const PANICKED: i32 = 101;

/// A term as its `LEAD` line shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Led {
    pub(crate) node: usize,
    pub(crate) at: Stamp,
    pub(crate) fence: i64,
}

/// Starts a node as another user, who perhaps may not run this program from where it is.
fn spawn_as(user: u32, options: &Options) -> Process {
    let (_dir, copy) = trials::public_copy();
    let mut command = Command::new(copy);
    command.uid(user).gid(user).current_dir("/");
    options.put(&mut command);
    // Once it runs it needs the file no more.
    Process::spawn(command)
}

impl Fleet {
    pub(crate) fn new() -> Fleet {
        Fleet::default()
    }

    /// Takes in a process that has told this by now, as if it were a node.
    pub(crate) fn adopt(&mut self, process: Process, story: Story) {
        self.nodes.push(Node { process, story, running: true });
    }

    /// Starts a node and returns its number.
    pub(crate) fn start(&mut self, options: &Options) -> usize {
        let process = match options.user {
            None => Process::spawn_self(|command| options.put(command)),
            Some(user) => spawn_as(user, options),
        };
        let story = Story { label: options.label.clone(), lines: Vec::new(), cut_off: false };
        self.adopt(process, story);
        self.nodes.len() - 1
    }

    /// Starts a node that leads before anybody else is there.
    #[track_caller]
    pub(crate) fn start_leader(&mut self, options: &Options) -> Led {
        let node = self.start(options);
        self.await_lead(LIMIT, "the first node leads", |led| led.node == node)
    }

    /// Takes in what the nodes have said by now.
    pub(crate) fn read(&mut self) {
        for node in &mut self.nodes {
            while let Some(line) = node.process.try_line() {
                node.story.tell(line.parse().unwrap_or_else(|fault| panic!("{fault}")));
            }
        }
    }

    /// Waits for something in the stories.
    #[track_caller]
    pub(crate) fn await_story<T>(
        &mut self,
        within: Duration,
        what: &str,
        mut find: impl FnMut(&Fleet) -> Option<T>,
    ) -> T {
        let begun = Instant::now();
        loop {
            self.read();
            if let Some(found) = find(self) {
                return found;
            }
            assert!(begun.elapsed() < within, "not within {within:?}: {what}\n{}", self.told());
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    #[track_caller]
    pub(crate) fn await_lead(&mut self, within: Duration, what: &str, wanted: impl Fn(&Led) -> bool) -> Led {
        self.await_story(within, what, |fleet| fleet.leads().into_iter().find(|led| wanted(led)))
    }

    /// When the term with this fence was lost, as its holder says.
    #[track_caller]
    pub(crate) fn await_lost(&mut self, within: Duration, fence: i64) -> Stamp {
        self.await_story(within, &format!("fence {fence} is lost"), |fleet| fleet.lost(fence))
    }

    fn lost(&self, fence: i64) -> Option<Stamp> {
        self.lines().find_map(|(_, line)| match line {
            Line::Lost { at, fence: lost, .. } if *lost == fence => Some(*at),
            _ => None,
        })
    }

    /// Waits until the node has led for so long, and renewed meanwhile.
    #[track_caller]
    pub(crate) fn await_held(&mut self, led: &Led, time: Duration) {
        let what = format!("fence {} is held for {time:?}", led.fence);
        self.await_story(LIMIT, &what, |fleet| {
            let held = fleet.certain(led.fence)?;
            (held.1 - held.0 >= time).then_some(())
        });
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.nodes.iter().enumerate().flat_map(|(i, node)| node.story.lines.iter().map(move |line| (i, line)))
    }

    pub(crate) fn leads(&self) -> Vec<Led> {
        let leads = self.lines().filter_map(|(node, line)| match line {
            Line::Lead { at, fence } => Some(Led { node, at: *at, fence: *fence }),
            _ => None,
        });
        leads.collect()
    }

    /// From when to when the term with this fence was certainly live, as far as is known.
    pub(crate) fn certain(&self, fence: i64) -> Option<(Stamp, Stamp)> {
        let held = self.lines().filter_map(|(_, line)| match line {
            Line::Held { fence: held, from, to } if *held == fence => Some((*from, *to)),
            _ => None,
        });
        held.last()
    }

    pub(crate) fn identity(&self, node: usize) -> Option<&str> {
        self.nodes[node].story.lines.iter().find_map(|line| match line {
            Line::Started { identity, .. } => Some(identity.as_str()),
            _ => None,
        })
    }

    pub(crate) fn started(&self, node: usize) -> Option<Stamp> {
        self.nodes[node].story.lines.iter().find_map(|line| match line {
            Line::Started { at, .. } => Some(*at),
            _ => None,
        })
    }

    /// The term with the highest fence that anybody has led.
    pub(crate) fn latest(&self) -> Option<Led> {
        self.leads().into_iter().max_by_key(|led| led.fence)
    }

    /// The numbers of the nodes that have not ended.
    pub(crate) fn running(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].running).collect()
    }

    /// Threads and descriptors of a node.
    pub(crate) fn counts(&self, node: usize) -> (usize, usize) {
        let pid = self.nodes[node].process.pid();
        (threads(pid), descriptors(pid))
    }

    /// Waits until a node has about as many threads and descriptors as before.
    #[track_caller]
    pub(crate) fn counts_come_back(&self, node: usize, before: (usize, usize)) {
        let now = self.counts(node);
        await_until(LIMIT, format_args!("threads and descriptors are back at {before:?}: {now:?}"), || {
            let after = self.counts(node);
            after.0.abs_diff(before.0) <= 3 && after.1.abs_diff(before.1) <= 3
        });
    }

    /// The term ended by the leader's own clock: no check succeeded after the deadline that the last answered
    /// renewal, sent before `cut`, can have given it, and the news came soon. How soon after the cut.
    #[track_caller]
    pub(crate) fn stepped_down(&mut self, led: &Led, cut: Stamp, profile: Profile) -> Duration {
        let (fence, latest) = (led.fence, cut + profile.term());
        // Also where it never says that its term is over.
        let lost = self.await_story(profile.step(), &format!("fence {fence} is lost"), |fleet| {
            let held = fleet.certain(fence).map_or(Stamp::ZERO, |(_, to)| to);
            let beyond = held.saturating_sub(cut);
            promised!(held <= latest, "{beyond:?} after the cut it was told that it leads\n{}", fleet.told());
            fleet.lost(fence)
        });
        lost.saturating_sub(cut)
    }

    #[track_caller]
    pub(crate) fn no_lost(&self) {
        let lost: Vec<_> = self.lines().filter(|(_, line)| matches!(line, Line::Lost { .. })).collect();
        assert!(lost.is_empty(), "{lost:?}\n{}", self.told());
    }

    /// SIGKILL. Returns a stamp at which it was gone.
    #[track_caller]
    pub(crate) fn kill(&mut self, node: usize) -> Stamp {
        let status = self.nodes[node].process.kill();
        self.nodes[node].running = false;
        self.nodes[node].story.cut_off = true;
        let gone = now();
        let label = &self.nodes[node].story.label;
        promised!(status.code() != Some(PANICKED), "{label} has panicked\n{}", self.told());
        assert_eq!(status.signal(), Some(9), "{label} had ended already: {status}\n{}", self.told());
        gone
    }

    pub(crate) fn terminate(&self, node: usize) -> Stamp {
        let asked = now();
        self.nodes[node].process.terminate();
        asked
    }

    /// Waits for the end of a node, and returns its status and when that was.
    #[track_caller]
    pub(crate) fn await_exit(&mut self, node: usize, within: Duration) -> (ExitStatus, Stamp) {
        let status = self.nodes[node].process.wait(within);
        self.nodes[node].running = false;
        (status, now())
    }

    /// Ends all nodes that still run, and holds their stories and the row's own history against the promise.
    #[track_caller]
    pub(crate) fn verify(&mut self, ground: &Ground<'_>, profile: Profile, terms: usize) {
        let bad = self.end();
        self.judge(terms);
        let rows = ground.rows();
        let faults = rows::faults(&rows, profile.lease);
        promised!(faults.is_empty(), "{faults:#?}\n{rows:#?}\n{}", self.told());
        for led in self.leads() {
            let holder = self.identity(led.node).expect("it said who it is");
            let known = rows.iter().any(|row| row.fence == led.fence && row.holder == holder);
            promised!(known, "{led:?} by {holder} is nowhere in {rows:#?}");
        }
        self.lay_over(&rows, profile);
        assert!(bad.is_empty(), "{bad:#?}\n{}", self.told());
    }

    /// What the nodes were told, laid over what the row says: nobody led for longer than the last renewal gave it,
    /// or when somebody else had the lease already.
    #[track_caller]
    fn lay_over(&self, rows: &[Row], profile: Profile) {
        let tolerance = rows::TOLERANCE;
        for led in self.leads() {
            let Some((from, to)) = self.certain(led.fence) else { continue };
            let mut own = rows.iter().filter(|row| row.fence == led.fence && !row.is_released());
            let (first, last) = (own.next().expect("it was granted"), own.next_back());
            let granted = rows::stamp(first.acquired);
            promised!(from + tolerance > granted, "led {led:?} {:?} too early", granted - from);
            let until = rows::stamp(last.unwrap_or(first).renewed) + profile.term() + tolerance;
            promised!(to < until, "led {led:?} {:?} too long\n{}", to - until, self.told());
            let next = rows.iter().find(|row| row.fence > led.fence);
            if let Some(next) = next.map(|row| rows::stamp(row.acquired) + tolerance) {
                promised!(to < next, "led {led:?} {:?} into the next term\n{}", to - next, self.told());
            }
        }
    }

    /// SIGTERM to whoever runs, and waits for all.
    #[track_caller]
    pub(crate) fn finish(&mut self) {
        let bad = self.end();
        assert!(bad.is_empty(), "{bad:#?}\n{}", self.told());
    }

    /// The same; returns what is wrong with the ends of the processes, so that their stories can be judged first.
    #[track_caller]
    fn end(&mut self) -> Vec<String> {
        self.nodes.iter().filter(|node| node.running).for_each(|node| node.process.terminate());
        let mut bad = Vec::new();
        for node in self.nodes.iter_mut().filter(|node| node.running) {
            let status = node.process.wait(LIMIT);
            node.running = false;
            if !status.success() {
                let broken = if status.code() == Some(PANICKED) { stillness::BROKEN } else { "bad end" };
                bad.push(format!("{broken}: {} ended with {status}", node.story.label));
            }
        }
        // The reading threads get to the ends of the pipes.
        for node in &mut self.nodes {
            while let Some(line) = node.process.line(LIMIT) {
                if let Ok(line) = line.parse() {
                    node.story.tell(line);
                }
            }
        }
        bad
    }

    /// The stories as far as they were told, where none owes a proper end any more.
    fn unfinished(&self) -> Vec<Story> {
        self.nodes.iter().map(|node| Story { cut_off: true, ..node.story.clone() }).collect()
    }

    /// What a fleet that is given up has broken. Waits for nothing and does not panic.
    fn broken(&mut self) -> Vec<String> {
        for node in &mut self.nodes {
            let told: Vec<Line> =
                std::iter::from_fn(|| node.process.try_line()).filter_map(|line| line.parse().ok()).collect();
            told.into_iter().for_each(|line| node.story.tell(line));
        }
        let nothing = AtLeast { terms: 0, held: Duration::ZERO };
        let mut faults = history::faults(&self.unfinished(), nothing);
        for node in self.nodes.iter_mut().filter(|node| node.running) {
            if node.process.has_ended().is_some_and(|status| status.code() == Some(PANICKED)) {
                faults.push(format!("{} has panicked", node.story.label));
            }
        }
        faults
    }

    /// Holds the stories against the promise. Everybody has to have ended.
    #[track_caller]
    pub(crate) fn judge(&self, terms: usize) {
        let stories: Vec<Story> = self.nodes.iter().map(|node| node.story.clone()).collect();
        let held = Duration::from_millis(100);
        let faults = history::faults(&stories, AtLeast { terms, held });
        promised!(faults.is_empty(), "{faults:#?}\n{}", self.told());
    }

    /// Whatever failed passes by itself.
    #[track_caller]
    pub(crate) fn nothing_is_fatal(&self) {
        let fatal = self.lines().find(|(_, line)| matches!(line, Line::Err { fatal: true, .. }));
        assert_eq!(fatal, None, "{}", self.told());
    }

    /// All that was said, without the bulk of it.
    pub(crate) fn told(&self) -> String {
        self.told_since(Stamp::ZERO)
    }

    pub(crate) fn told_since(&self, since: Stamp) -> String {
        let lines = self.lines().filter(|(_, line)| !matches!(line, Line::Held { .. }) && line.at() >= since);
        let mut lines: Vec<(Stamp, String)> = lines
            .map(|(node, line)| {
                let at = line.at();
                (at, format!("{at:.3?} {}#{node} {line}", self.nodes[node].story.label))
            })
            .collect();
        lines.sort();
        lines.into_iter().map(|(_, line)| line + "\n").collect()
    }
}

/// A test that fails, for whatever reason, leaves its fleet here: what that has told counts all the same.
impl Drop for Fleet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let faults = self.broken();
            if !faults.is_empty() {
                stillness::broken(format!("{faults:#?}\n{}", self.told()));
            }
        }
        stillness::overlapped(history::overlaps(&history::terms(&self.unfinished())));
    }
}
