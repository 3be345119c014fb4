//! What `tenure` and its guardian say to each other, over a pair of SOCK_SEQPACKET sockets.
//!
//! Nothing here blocks in sending: a peer that stands still must not make the other one stand still. A packet arrives
//! whole or not at all. The end of the peer, however it came, reads as the end of the file (unix(7)).

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair, sockopt,
};
use serde_json::{Value, json};
use tenure::{Fence, Time};

use super::timing::Leads;
use crate::options::StoreOptions;

/// Room for the longest name and any sensible URL.
const LARGEST: usize = 64 * 1024;
/// The command's standard input, and `tenure` itself as a pidfd.
const DESCRIPTORS: usize = 2;

/// All that the guardian has to know to guard a term, and to give its lease back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) election: String,
    pub(super) holder: String,
    pub(super) fence: Fence,
    /// May hold a password: never on a command line, never in the command's environment.
    pub(super) store: StoreOptions,
    pub(super) operation_timeout: Duration,
    pub(super) leads: Leads,
    pub(super) deadline: Time,
}

/// What either says to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// To the guardian, first of all, with the descriptors.
    Plan(Box<Plan>),
    /// To the guardian: the term was renewed.
    Deadline(Time),
    /// To the guardian: a signal for the command.
    Signal(i32),
    /// To the guardian: the term is over, end the command.
    End,
    /// From the guardian: the command has ended with this exit code.
    Exited {
        code: u8,
        /// It was being ended when it did.
        ending: bool,
    },
    /// From the guardian: why it could not start the command.
    NotStarted(String),
    /// From the guardian: these were killed long ago and are still there.
    Stuck(Vec<i32>),
    /// From the guardian: neither the command nor any descendant of it is left.
    Gone,
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Message {
    fn to_json(&self) -> Value {
        match self {
            Message::Plan(plan) => json!({ "plan": {
                "election": plan.election,
                "holder": plan.holder,
                "fence": plan.fence.get(),
                "store": plan.store.store,
                "table": plan.store.table(),
                "operation_timeout": nanos(plan.operation_timeout),
                "grace": nanos(plan.leads.grace),
                "kill": nanos(plan.leads.kill),
                "deadline": plan.deadline.as_nanos(),
            }}),
            Message::Deadline(deadline) => json!({ "deadline": deadline.as_nanos() }),
            Message::Signal(signal) => json!({ "signal": signal }),
            Message::End => json!({ "end": true }),
            Message::Exited { code, ending } => json!({ "exited": code, "ending": ending }),
            Message::NotStarted(why) => json!({ "not_started": why }),
            Message::Stuck(left) => json!({ "stuck": left }),
            Message::Gone => json!({ "gone": true }),
        }
    }

    fn of_json(value: &Value) -> Option<Message> {
        if let Some(plan) = value.get("plan") {
            let text = |key: &str| plan.get(key)?.as_str().map(str::to_owned);
            let number = |key: &str| plan.get(key)?.as_u64();
            let duration = |key: &str| number(key).map(Duration::from_nanos);
            return Some(Message::Plan(Box::new(Plan {
                election: text("election")?,
                holder: text("holder")?,
                fence: Fence::try_from(plan.get("fence")?.as_i64()?).ok()?,
                store: StoreOptions::handed_on(text("store")?, plan.get("table")?.as_str())?,
                operation_timeout: duration("operation_timeout")?,
                leads: Leads { grace: duration("grace")?, kill: duration("kill")? },
                deadline: Time::from_nanos(number("deadline")?),
            })));
        }
        if let Some(deadline) = value.get("deadline") {
            return Some(Message::Deadline(Time::from_nanos(deadline.as_u64()?)));
        }
        if let Some(signal) = value.get("signal") {
            return Some(Message::Signal(i32::try_from(signal.as_i64()?).ok()?));
        }
        if let Some(code) = value.get("exited") {
            let code = u8::try_from(code.as_u64()?).ok()?;
            return Some(Message::Exited { code, ending: value.get("ending")?.as_bool()? });
        }
        if let Some(why) = value.get("not_started") {
            return Some(Message::NotStarted(why.as_str()?.to_owned()));
        }
        if let Some(left) = value.get("stuck") {
            let left = left.as_array()?.iter().map(|pid| i32::try_from(pid.as_i64()?).ok());
            return left.collect::<Option<_>>().map(Message::Stuck);
        }
        let said = |key: &str| value.get(key).is_some();
        said("end").then_some(Message::End).or(said("gone").then_some(Message::Gone))
    }
}

/// What came.
#[derive(Debug)]
pub(super) enum Received {
    Message(Message, Vec<OwnedFd>),
    /// Nothing at the moment.
    Nothing,
    /// The peer is gone, or is none of ours.
    Closed,
}

/// One end of the pair.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

impl Channel {
    /// This process's end, and the one for the guardian. Neither survives an exec by itself.
    pub(super) fn pair() -> Result<(Channel, OwnedFd), Errno> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Channel(ours), theirs))
    }

    /// The end that this process was given; `None` where the descriptor is something else.
    pub(super) fn of(descriptor: OwnedFd) -> Option<Channel> {
        (sockopt::socket_type(&descriptor) == Ok(SocketType::SEQPACKET)).then_some(Channel(descriptor))
    }

    /// Never blocks.
    ///
    /// # Errors
    /// The message was not sent: the peer is gone, or has not read for so long that nothing more fits.
    pub(super) fn send(&self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let bytes = message.to_json().to_string();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if bytes.len() > LARGEST
            || !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors))
        {
            return Err(Errno::MSGSIZE);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.0, &[IoSlice::new(bytes.as_bytes())], &mut control, flags).map(drop)
    }

    /// Never blocks.
    pub(super) fn receive(&self) -> Received {
        let mut bytes = vec![0; LARGEST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let read = match recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Ok(read) => read.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
            Err(_) => return Received::Closed,
        };
        let descriptors = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let descriptors = descriptors.flatten().collect();
        let value = serde_json::from_slice(&bytes[..read]).ok();
        let message = value.as_ref().and_then(Message::of_json);
        message.map_or(Received::Closed, |message| Received::Message(message, descriptors))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Message {
        Message::Plan(Box::new(Plan {
            election: "é \"quoted\"".to_owned(),
            holder: "host-1-abc".to_owned(),
            fence: Fence::try_from(i64::MAX - 1).unwrap(),
            store: StoreOptions::handed_on("postgres://app:p@db/app".to_owned(), Some("ops.\"a.b\""))
                .unwrap(),
            operation_timeout: Duration::from_secs(3),
            leads: Leads { grace: Duration::from_millis(1), kill: Duration::from_nanos(7) },
            deadline: Time::from_nanos(u64::MAX - 1),
        }))
    }

    #[test]
    fn whatever_is_said_arrives_as_it_was_said() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel::of(theirs).unwrap();
        let all = [
            plan(),
            Message::Deadline(Time::from_nanos(5)),
            Message::Signal(15),
            Message::End,
            Message::Exited { code: 143, ending: true },
            Message::NotStarted("no more processes".to_owned()),
            Message::Stuck(vec![7, 8]),
            Message::Gone,
        ];
        for message in &all {
            ours.send(message, &[]).unwrap();
        }
        for message in &all {
            let Received::Message(received, descriptors) = theirs.receive() else { panic!("{message:?}") };
            assert_eq!(&received, message);
            assert!(descriptors.is_empty());
        }
        assert!(matches!(theirs.receive(), Received::Nothing));
    }

    #[test]
    fn descriptors_travel_along() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel::of(theirs).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        ours.send(&plan(), &[file.as_fd(), file.as_fd()]).unwrap();
        let Received::Message(_, descriptors) = theirs.receive() else { panic!("nothing came") };
        assert_eq!(descriptors.len(), 2);
    }

    #[test]
    fn a_peer_that_is_gone_is_told_from_one_that_is_silent() {
        let (ours, theirs) = Channel::pair().unwrap();
        assert!(matches!(ours.receive(), Received::Nothing));
        drop(theirs);
        assert!(matches!(ours.receive(), Received::Closed));
        assert!(ours.send(&Message::End, &[]).is_err());
    }

    #[test]
    fn a_peer_that_does_not_read_holds_nobody_up() {
        let (ours, _theirs) = Channel::pair().unwrap();
        let refused =
            (0..100_000).find_map(|n| ours.send(&Message::Deadline(Time::from_nanos(n)), &[]).err());
        assert_eq!(refused, Some(Errno::AGAIN));
    }

    #[test]
    fn what_is_none_of_ours_is_refused() {
        assert!(Channel::of(std::fs::File::open("/dev/null").unwrap().into()).is_none());
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(Channel::of(one.into()).is_none());
        for odd in ["", "[]", "{}", "{\"plan\":{}}", "{\"exited\":300,\"ending\":true}", "{\"deadline\":-1}"]
        {
            let value = serde_json::from_str(odd).ok();
            assert_eq!(value.as_ref().and_then(Message::of_json), None, "{odd}");
        }
    }
}
