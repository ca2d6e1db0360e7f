//! Every message comes back as it was; arbitrary and damaged bytes are errors, never a panic, and what
//! decodes encodes to something that decodes to the same.

use std::fmt::Debug;

use flashfork_proto::agent::{
    AgentError, CloneIdentity, ErrorKind, Exec, Exit, Hello, HookRun, MAX_FRAME, Piece, Reply, Request, Stamp, Store,
    TerminalSize,
};
use flashfork_proto::frame;
use flashfork_proto::shape::{Pages, Shape};
use flashfork_proto::shell::{
    Boot, BootDisk, BootGuest, Claim, ClaimTimes, Ended, Extent, FromShell, Go, Origin, Pause, Renewal, Run, ToShell,
};
use flashfork_proto::signal::{Access, AttachedDisk, Device, Done, Forked, MAX_PAYLOAD, Signal};
use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use serde_bytes::ByteBuf;

fn bytes() -> impl Strategy<Value = ByteBuf> {
    prop::collection::vec(any::<u8>(), 0..300).prop_map(ByteBuf::from)
}

fn identity() -> impl Strategy<Value = CloneIdentity> {
    ("[a-z][a-z0-9.-]{0,63}", any::<u64>(), any::<[u8; 16]>(), bytes())
        .prop_map(|(name, index, generation, job)| CloneIdentity { name, index, generation, job: job.into_vec() })
}

fn exit() -> impl Strategy<Value = Exit> {
    prop_oneof![any::<u8>().prop_map(Exit::Code), any::<i32>().prop_map(Exit::Signal)]
}

fn terminal() -> impl Strategy<Value = TerminalSize> {
    any::<(u16, u16)>().prop_map(|(rows, columns)| TerminalSize { rows, columns })
}

fn stamp() -> impl Strategy<Value = Stamp> {
    any::<(i64, u32)>().prop_map(|(seconds, nanoseconds)| Stamp { seconds, nanoseconds })
}

fn exec() -> impl Strategy<Value = Exec> {
    (
        prop::collection::vec(bytes(), 0..4),
        prop::collection::vec((bytes(), bytes()), 0..4),
        prop::option::of(bytes()),
        any::<Option<String>>(),
        prop::option::of(terminal()),
        any::<bool>(),
    )
        .prop_map(|(argv, env, cwd, user, terminal, survives)| Exec { argv, env, cwd, user, terminal, survives })
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        (bytes(), any::<u32>()).prop_map(|(name, mode)| Piece::Directory { name, mode }),
        (bytes(), any::<u32>()).prop_map(|(name, mode)| Piece::File { name, mode }),
        (bytes(), bytes()).prop_map(|(name, target)| Piece::Link { name, target }),
        bytes().prop_map(Piece::Bytes),
        any::<String>().prop_map(Piece::Trouble),
        Just(Piece::Leave),
        Just(Piece::FileEnd),
        Just(Piece::End),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        Just(Request::Ping),
        Just(Request::StdinEnd),
        Just(Request::PowerOff),
        exec().prop_map(Request::Exec),
        bytes().prop_map(Request::Stdin),
        bytes().prop_map(Request::Reseed),
        any::<i32>().prop_map(Request::Signal),
        terminal().prop_map(Request::Resize),
        stamp().prop_map(Request::SetClock),
        identity().prop_map(Request::Hooks),
        any::<u16>().prop_map(Request::Dial),
        bytes().prop_map(Request::Data),
        Just(Request::DataEnd),
        bytes().prop_map(Request::Fetch),
        (bytes(), prop::option::of(bytes())).prop_map(|(path, name)| Request::Store(Store { path, name })),
        piece().prop_map(Request::Piece),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let hello = (any::<String>(), any::<[u8; 16]>(), any::<u64>(), stamp()).prop_map(
        |(agent, boot_id, monotonic_ns, realtime)| Reply::Hello(Hello { agent, boot_id, monotonic_ns, realtime }),
    );
    let hook = (any::<String>(), prop::option::of(exit()), any::<String>()).prop_map(|(name, exit, message)| HookRun {
        name,
        exit,
        message,
    });
    prop_oneof![
        hello,
        any::<u64>().prop_map(|monotonic_ns| Reply::Pong { monotonic_ns }),
        any::<u32>().prop_map(|pid| Reply::Started { pid }),
        bytes().prop_map(Reply::Stdout),
        bytes().prop_map(Reply::Stderr),
        any::<u32>().prop_map(Reply::StdinCredit),
        exit().prop_map(Reply::Exited),
        Just(Reply::Reseeded),
        any::<i64>().prop_map(|step_ns| Reply::ClockSet { step_ns }),
        prop::collection::vec(hook, 0..4).prop_map(Reply::Hooked),
        Just(Reply::PoweringOff),
        any::<String>().prop_map(|message| Reply::Failed(AgentError { kind: ErrorKind::Denied, message })),
        Just(Reply::Dialed),
        bytes().prop_map(Reply::Data),
        Just(Reply::DataEnd),
        piece().prop_map(Reply::Piece),
        Just(Reply::Storing),
        any::<String>().prop_map(Reply::Trouble),
        Just(Reply::Stored),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    (any::<u32>(), any::<u8>(), prop_oneof![Just(Pages::Small), Just(Pages::Huge)], any::<bool>(), any::<u8>())
        .prop_map(|(memory_mib, vcpus, pages, disk, disk_slots)| Shape { memory_mib, vcpus, pages, disk, disk_slots })
}

fn renewal() -> impl Strategy<Value = Renewal> {
    let disk = (any::<u8>(), any::<bool>(), any::<u64>(), any::<String>())
        .prop_map(|(number, read_only, sectors, mount)| AttachedDisk { number, read_only, sectors, mount });
    (identity(), any::<[u8; 32]>(), prop::collection::vec(disk, 0..3)).prop_map(|(identity, entropy, disks)| Renewal {
        identity,
        entropy,
        disks,
    })
}

fn disk() -> impl Strategy<Value = BootDisk> {
    (any::<u64>(), any::<String>(), any::<bool>()).prop_map(|(limit, serial, read_only)| BootDisk {
        limit,
        serial,
        read_only,
    })
}

fn extents() -> impl Strategy<Value = Vec<Extent>> {
    prop::collection::vec((any::<u32>(), any::<u8>()).prop_map(|(pages, file)| Extent { pages, file }), 0..4)
}

fn origin() -> impl Strategy<Value = Origin> {
    (bytes(), extents(), prop::collection::vec(extents(), 0..3)).prop_map(|(state, ram, disks)| Origin {
        state: state.into_vec(),
        ram,
        disks,
    })
}

fn runs() -> impl Strategy<Value = Vec<Run>> {
    prop::collection::vec(any::<[u32; 2]>().prop_map(|[first, pages]| Run { first, pages }), 0..9)
}

fn to_shell() -> impl Strategy<Value = ToShell> {
    prop_oneof![
        shape().prop_map(ToShell::Prepare),
        (renewal(), any::<u32>(), origin(), prop::collection::vec(disk(), 0..3)).prop_map(
            |(renewal, cid, origin, attach)| ToShell::Claim(Box::new(Claim { renewal, cid, origin, attach }))
        ),
        Just(ToShell::Copy),
        any::<bool>().prop_map(|at_signal| ToShell::Branch { at_signal }),
        Just(ToShell::Abandon),
        Just(ToShell::Refuse),
        (any::<u32>(), bytes()).prop_map(|(cid, code)| ToShell::Boot(Box::new(Boot {
            cid,
            guest: BootGuest::Tiny(code.into_vec()),
            disk: None
        }))),
        (any::<u32>(), any::<String>(), any::<bool>(), prop::option::of(disk())).prop_map(
            |(cid, cmdline, initramfs, disk)| {
                ToShell::Boot(Box::new(Boot { cid, guest: BootGuest::Linux { cmdline, initramfs }, disk }))
            }
        ),
        Just(ToShell::Freeze),
        any::<u32>().prop_map(|port| ToShell::Connect { port }),
        Just(ToShell::Pause),
        Just(ToShell::Resume),
        Just(ToShell::Stop),
        any::<u64>().prop_map(ToShell::Adopt),
        renewal().prop_map(|renewal| ToShell::Rollback(Box::new(renewal))),
        bytes().prop_map(|input| ToShell::Input(input.into_vec())),
        origin().prop_map(|origin| ToShell::Prime(Box::new(origin))),
        runs().prop_map(ToShell::Populate),
        Just(ToShell::Tell),
        (renewal(), any::<u32>()).prop_map(|(renewal, cid)| ToShell::Go(Box::new(Go { renewal, cid }))),
    ]
}

fn from_shell() -> impl Strategy<Value = FromShell> {
    let done = (any::<u32>(), bytes()).prop_map(|(status, result)| Done { status, result: result.into_vec() });
    prop_oneof![
        Just(FromShell::Ready),
        Just(FromShell::Done),
        Just(FromShell::Forked),
        bytes().prop_map(|state| FromShell::Frozen { state: state.into_vec() }),
        Just(FromShell::Copied),
        (bytes(), any::<[u64; 4]>(), any::<bool>()).prop_map(|(state, [stop, copy, save, pages], tracked)| {
            FromShell::Branched { state: state.into_vec(), pause: Pause { stop, copy, save, pages, tracked } }
        }),
        any::<[u64; 6]>().prop_map(|[check, map, devices, machine, vcpus, first_exit]| {
            FromShell::Claimed(ClaimTimes { check, map, devices, machine, vcpus, first_exit })
        }),
        any::<[u8; 16]>().prop_map(FromShell::Alive),
        any::<u64>().prop_map(FromShell::Lap),
        bytes().prop_map(|bytes| FromShell::Console(bytes.into_vec())),
        any::<String>().prop_map(FromShell::Failed),
        any::<String>().prop_map(FromShell::Trouble),
        done.prop_map(|done| FromShell::Ended(Ended::Done(done))),
        Just(FromShell::Ended(Ended::Reset)),
        Just(FromShell::Primed),
        runs().prop_map(FromShell::Written),
        any::<u64>().prop_map(FromShell::Adopted),
    ]
}

fn encoded<T: Serialize>(message: &T) -> Vec<u8> {
    let mut stream = Vec::new();
    frame::write(&mut stream, message, MAX_FRAME).unwrap();
    stream
}

fn comes_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(message: &T) {
    let stream = encoded(message);
    assert_eq!(frame::read::<T>(&mut stream.as_slice(), MAX_FRAME).unwrap().as_ref(), Some(message));
}

/// Whatever `stream` is, reading it ends, and what was read is a message that comes back.
fn survives<T: Serialize + DeserializeOwned + PartialEq + Debug>(mut stream: &[u8]) {
    while let Ok(Some(message)) = frame::read::<T>(&mut stream, MAX_FRAME) {
        comes_back(&message);
    }
}

proptest! {
    #[test]
    fn requests_come_back(message in request()) {
        comes_back(&message);
    }

    #[test]
    fn replies_come_back(message in reply()) {
        comes_back(&message);
    }

    #[test]
    fn shell_messages_come_back(to in to_shell(), from in from_shell()) {
        comes_back(&to);
        comes_back(&from);
    }

    #[test]
    fn arbitrary_bytes_are_survived(content in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut stream = (content.len() as u32).to_le_bytes().to_vec();
        stream.extend_from_slice(&content);
        for stream in [&stream, &content] {
            survives::<Request>(stream);
            survives::<Reply>(stream);
            survives::<ToShell>(stream);
            survives::<FromShell>(stream);
        }
    }

    #[test]
    fn damaged_messages_are_survived(message in request(), other in to_shell(), at in any::<usize>(), value: u8) {
        for mut stream in [encoded(&message), encoded(&other)] {
            let at = at % stream.len();
            stream[at] = value;
            survives::<Request>(&stream);
            survives::<ToShell>(&stream);
        }
    }

    #[test]
    fn a_guest_may_do_anything_to_the_ports(
        accesses in prop::collection::vec(
            (any::<bool>(), 0x1230_u16..0x1244, prop::collection::vec(any::<u8>(), 0..5000)), 0..30)
    ) {
        let mut device = Device::default();
        for (write, port, mut data) in accesses {
            if write {
                if let Access::Signal(signal) = device.write(port, &data) {
                    let (number, payload) = signal.encode();
                    prop_assert!(payload.len() <= MAX_PAYLOAD);
                    prop_assert_eq!(Signal::decode(number, &payload), Ok(signal));
                    device.answer(Default::default(), &data);
                }
            } else {
                device.read(port, &mut data);
            }
        }
    }

    #[test]
    fn replies_to_a_fork_come_back(
        renewal in renewal(),
        time in any::<u64>(),
        other in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let forked = renewal.forked(time);
        prop_assert_eq!(Forked::decode(&forked.encode()), Some(forked));
        if let Some(forked) = Forked::decode(&other) {
            prop_assert_eq!(Forked::decode(&forked.encode()), Some(forked));
        }
    }
}

#[test]
fn a_list_that_claims_to_be_endless_is_an_error() {
    // Exec with 2^63 arguments.
    let content = [1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    let mut stream = vec![content.len() as u8, 0, 0, 0];
    stream.extend(content);
    assert!(frame::read::<Request>(&mut stream.as_slice(), MAX_FRAME).is_err());
}
