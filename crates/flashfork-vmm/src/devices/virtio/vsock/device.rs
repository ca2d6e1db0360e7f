//! The device: packets between the queues and the connections.

use super::super::device::{Broken, Queues, VirtioDevice};
use super::connection::{Connection, Gone, Received};
use super::connector::Connector;
use super::header::{Bytes, Header};
use super::wire::{EVENT, HOST_CID, RX, SHUTDOWN_RECEIVE, SHUTDOWN_SEND, STREAM, TRANSPORT_RESET, TX, op};
use event_manager::{EventOps, Events};
use rustix::net::{Shutdown, shutdown};
use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use virtio_bindings::virtio_ids::VIRTIO_ID_VSOCK;
use virtio_queue::QueueT;
use vmm_sys_util::epoll::EventSet;

use super::super::device::OWN_EVENTS;

/// Data of the event of [`Connector::wake`].
const WAKE: u32 = OWN_EVENTS;
/// Ports of the host's ends start here; they are their events' data too.
const FIRST_PORT: u32 = 1024;
/// Streams at once.
const MAX_CONNECTIONS: usize = 256;
/// Packets without data that may wait for the guest to take them; a guest that doesn't is not listened to meanwhile.
const MAX_REPLIES: usize = 512;
/// Greatest length of a packet's data (Linux: VIRTIO_VSOCK_MAX_PKT_BUF_SIZE).
const MAX_DATA: usize = 64 << 10;
/// Packets from one stream in a row.
const TURN: usize = 32;

/// Whether packets go to the guest.
///
/// After a restore the guest first has to forget the connections it had, and it does that later than it would take new ones: a
/// new connection that came too early would die with the old. Its driver puts an event's buffer back when it has dealt
/// with the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    /// The guest must be told.
    Closed,
    /// It was told, with so many events.
    Told(u16),
}

/// The vsock device.
#[derive(Debug)]
pub struct Vsock {
    connector: Connector,
    /// By the host's port.
    connections: BTreeMap<u32, Connection>,
    /// Connections of a life before this one, shut down but not closed yet.
    dead: Vec<Connection>,
    replies: VecDeque<Header>,
    next_port: u32,
    gate: Gate,
    /// The guest has given no buffers for packets.
    starved: bool,
    data: Vec<u8>,
}

impl Vsock {
    /// A device that `connector` leads to.
    pub fn new(connector: Connector) -> Self {
        Self {
            connector,
            connections: BTreeMap::new(),
            dead: Vec::new(),
            replies: VecDeque::new(),
            next_port: FIRST_PORT,
            gate: Gate::Open,
            starved: false,
            data: vec![0; MAX_DATA],
        }
    }

    fn open(&self) -> bool {
        self.gate == Gate::Open && !self.starved
    }

    /// Everything that can be done now, after something has changed.
    fn go_on(&mut self, queues: &mut Queues<'_>, ops: &mut EventOps<'_>) -> Result<(), Broken> {
        for dead in self.dead.drain(..) {
            unregister(&dead, ops);
        }
        self.gate(queues)?;
        self.accept();
        self.flush(queues)?;
        self.take(queues)?;
        self.flush(queues)?;
        let open = self.open();
        let mut lost = Vec::new();
        for (&port, connection) in &mut self.connections {
            if register(connection, port, open, ops).is_err() {
                lost.push(port);
            }
        }
        for port in lost {
            self.end(port, op::RST, 0);
            self.flush(queues)?;
        }
        for dead in self.dead.drain(..) {
            unregister(&dead, ops);
        }
        Ok(())
    }

    /// Tells the guest of a restore, and notes when it has understood.
    fn gate(&mut self, queues: &mut Queues<'_>) -> Result<(), Broken> {
        if !queues.queues[EVENT].ready() {
            return Ok(());
        }
        if self.gate == Gate::Closed {
            let mut told = 0;
            while let Some(chain) = queues.pop(EVENT) {
                let head = chain.head_index();
                let mut writer = chain.writer(queues.memory).map_err(|e| Broken(e.to_string()))?;
                writer.write_all(&TRANSPORT_RESET.to_le_bytes()).map_err(|e| Broken(e.to_string()))?;
                queues.push(EVENT, head, 4)?;
                told += 1;
            }
            if told > 0 {
                self.gate = Gate::Told(told);
                queues.rearm(EVENT)?;
            }
        }
        if let Gate::Told(told) = self.gate {
            let queue = &queues.queues[EVENT];
            let there = queue.avail_idx(queues.memory, Ordering::Acquire).map_err(|e| Broken(e.to_string()))?;
            if there.0.wrapping_sub(queue.next_avail()) >= told {
                self.gate = Gate::Open;
            }
        }
        Ok(())
    }

    /// Begins the connections that wait.
    fn accept(&mut self) {
        // The guest has no use for them while it must not hear of them.
        if self.gate != Gate::Open {
            return;
        }
        for (stream, guest_port) in self.connector.take() {
            // Closed at once, which is what the host sees.
            if self.connections.len() >= MAX_CONNECTIONS {
                continue;
            }
            while self.connections.contains_key(&self.next_port) {
                self.next_port = following(self.next_port);
            }
            let port = self.next_port;
            self.next_port = following(port);
            self.connections.insert(port, Connection::new(stream, guest_port));
            self.reply(port, op::REQUEST, 0);
        }
    }

    /// Packets from the guest.
    fn take(&mut self, queues: &mut Queues<'_>) -> Result<(), Broken> {
        if !queues.queues[TX].ready() {
            return Ok(());
        }
        while self.replies.len() < MAX_REPLIES
            && let Some(chain) = queues.pop(TX)
        {
            let head = chain.head_index();
            let mut reader = chain.reader(queues.memory).map_err(|e| Broken(e.to_string()))?;
            let mut header: Bytes = [0; _];
            // Without a header it is no packet; with less data than it says it is one that lies.
            if reader.read_exact(&mut header).is_ok() {
                let header = Header::decode(&header);
                let length = header.len as usize;
                let mut data = std::mem::take(&mut self.data);
                let whole = length <= MAX_DATA && reader.read_exact(&mut data[..length]).is_ok();
                self.packet(&header, whole.then(|| &data[..length]));
                self.data = data;
            }
            queues.push(TX, head, 0)?;
        }
        Ok(())
    }

    /// One packet from the guest; `data` is missing if it isn't as long as the header says.
    fn packet(&mut self, header: &Header, data: Option<&[u8]>) {
        if header.src_cid != u64::from(self.connector.cid()) || header.dst_cid != HOST_CID {
            // Of a life before a restore, or from nobody.
            return;
        }
        let port = header.dst_port;
        let known = self
            .connections
            .get_mut(&port)
            .filter(|connection| header.kind == STREAM && connection.guest_port == header.src_port);
        let Some(connection) = known else {
            // Also the guest's own requests: nothing listens on the host.
            if header.op != op::RST {
                self.refuse(header);
            }
            return;
        };
        connection.note_credit(header);
        let result = match (header.op, data) {
            (op::RESPONSE, Some(_)) if !connection.established => {
                connection.established = true;
                Ok(())
            }
            (op::RW, Some(data)) if connection.established => connection.deliver(data),
            (op::SHUTDOWN, Some(_)) if connection.established => {
                connection.to_guest_ended |= header.flags & SHUTDOWN_RECEIVE != 0;
                if header.flags & SHUTDOWN_SEND != 0 { connection.end_from_guest() } else { Ok(()) }
            }
            (op::CREDIT_UPDATE, Some(_)) if connection.established => Ok(()),
            (op::CREDIT_REQUEST, Some(_)) if connection.established => {
                self.reply(port, op::CREDIT_UPDATE, 0);
                return;
            }
            (op::RST, _) => {
                self.bury(port);
                return;
            }
            _ => Err(Gone),
        };
        self.settle(port, result);
    }

    /// After something came from the guest, or went to the host.
    fn settle(&mut self, port: u32, result: Result<(), Gone>) {
        let Some(connection) = self.connections.get(&port) else { return };
        if result.is_err() || connection.is_over() {
            // A shutdown of both sides is answered with a reset: the guest keeps the port until then.
            self.end(port, op::RST, 0);
        } else if connection.owes_credit() {
            self.reply(port, op::CREDIT_UPDATE, 0);
        }
    }

    /// Ends a connection, with a last packet to the guest.
    fn end(&mut self, port: u32, op: u16, flags: u32) {
        self.reply(port, op, flags);
        self.bury(port);
    }

    /// The host's side sees the end at once; closed is it when nobody waits for it any more.
    fn bury(&mut self, port: u32) {
        if let Some(connection) = self.connections.remove(&port) {
            // Fails for a stream that is none any more.
            let _ = shutdown(&connection.stream, Shutdown::Both);
            self.dead.push(connection);
        }
    }

    fn reply(&mut self, port: u32, op: u16, flags: u32) {
        let dst_cid = self.connector.cid().into();
        if let Some(connection) = self.connections.get_mut(&port) {
            let (buf_alloc, fwd_cnt) = connection.tell();
            self.replies.push_back(Header {
                src_cid: HOST_CID,
                dst_cid,
                src_port: port,
                dst_port: connection.guest_port,
                kind: STREAM,
                op,
                flags,
                buf_alloc,
                fwd_cnt,
                len: 0,
            });
        }
    }

    /// There is no such connection.
    fn refuse(&mut self, header: &Header) {
        self.replies.push_back(Header {
            src_cid: HOST_CID,
            dst_cid: header.src_cid,
            src_port: header.dst_port,
            dst_port: header.src_port,
            kind: header.kind,
            op: op::RST,
            ..Header::default()
        });
    }

    /// Packets without data to the guest, as many as it takes.
    fn flush(&mut self, queues: &mut Queues<'_>) -> Result<(), Broken> {
        if self.gate != Gate::Open {
            return Ok(());
        }
        while let Some(&reply) = self.replies.front() {
            let Some(mut buffer) = self.buffer(queues)? else { return Ok(()) };
            buffer.put(&reply, &[])?;
            queues.push(RX, buffer.head, buffer.length)?;
            self.replies.pop_front();
        }
        Ok(())
    }

    /// The guest's next buffer for a packet.
    fn buffer<'a>(&mut self, queues: &mut Queues<'a>) -> Result<Option<Buffer<'a>>, Broken> {
        if !queues.queues[RX].ready() {
            self.starved = true;
            return Ok(None);
        }
        loop {
            let there = queues.queues[RX].avail_idx(queues.memory, Ordering::Acquire);
            let there = there.map_err(|e| Broken(e.to_string()))?.0;
            if let Some(chain) = queues.pop(RX) {
                self.starved = false;
                let head = chain.head_index();
                let writer = chain.writer(queues.memory).map_err(|e| Broken(e.to_string()))?;
                return Ok(Some(Buffer { head, writer, length: 0 }));
            }
            // Notified when it gives one; unless it just has.
            let more = queues.rearm(RX)?;
            // Buffers that were there already and can't be taken are a broken ring's.
            if !more || there != queues.queues[RX].next_avail() {
                self.starved = true;
                return Ok(None);
            }
        }
    }

    /// From a stream to the guest.
    fn pump(&mut self, port: u32, queues: &mut Queues<'_>) -> Result<(), Broken> {
        for _ in 0..TURN {
            self.flush(queues)?;
            let Some(connection) = self.connections.get(&port) else { return Ok(()) };
            if !self.open() || !connection.established || connection.to_guest_ended {
                return Ok(());
            }
            let credit = connection.credit();
            if credit == 0 {
                if !connection.asked {
                    self.reply(port, op::CREDIT_REQUEST, 0);
                    self.connections.get_mut(&port).expect("it is there").asked = true;
                    self.flush(queues)?;
                }
                return Ok(());
            }
            let Some(mut buffer) = self.buffer(queues)? else { return Ok(()) };
            let room = buffer.room()?.min(credit).min(MAX_DATA);
            let connection = self.connections.get_mut(&port).expect("it is there");
            let received = connection.receive(&mut self.data[..room]);
            if let Ok(Received::Bytes(length)) = received {
                let (buf_alloc, fwd_cnt) = connection.tell();
                let header = Header {
                    src_cid: HOST_CID,
                    dst_cid: self.connector.cid().into(),
                    src_port: port,
                    dst_port: connection.guest_port,
                    len: length as u32,
                    kind: STREAM,
                    op: op::RW,
                    flags: 0,
                    buf_alloc,
                    fwd_cnt,
                };
                buffer.put(&header, &self.data[..length])?;
                queues.push(RX, buffer.head, buffer.length)?;
                continue;
            }
            // The buffer is for another time.
            let next = queues.queues[RX].next_avail().wrapping_sub(1);
            queues.queues[RX].set_next_avail(next);
            match received {
                Ok(Received::Bytes(_) | Received::Nothing) => {}
                Ok(Received::End) if connection.hung_up => {
                    self.end(port, op::SHUTDOWN, SHUTDOWN_RECEIVE | SHUTDOWN_SEND);
                }
                Ok(Received::End) => {
                    connection.to_guest_ended = true;
                    let over = connection.is_over();
                    self.reply(port, op::SHUTDOWN, SHUTDOWN_SEND);
                    if over {
                        self.settle(port, Ok(()));
                    }
                }
                Err(Gone) => self.end(port, op::RST, 0),
            }
            return Ok(());
        }
        Ok(())
    }

    /// Something happened on a stream.
    fn stream(&mut self, port: u32, events: EventSet, queues: &mut Queues<'_>) -> Result<(), Broken> {
        let Some(connection) = self.connections.get_mut(&port) else { return Ok(()) };
        connection.hung_up |= events.intersects(EventSet::HANG_UP | EventSet::ERROR);
        if connection.hung_up && !connection.established {
            self.end(port, op::RST, 0);
            return Ok(());
        }
        if connection.hung_up && connection.to_guest_ended {
            self.end(port, op::SHUTDOWN, SHUTDOWN_RECEIVE | SHUTDOWN_SEND);
            return Ok(());
        }
        if events.contains(EventSet::OUT) {
            let result = connection.flush();
            self.settle(port, result);
        }
        self.pump(port, queues)
    }

    /// Forgets all connections, which belong to a life before.
    fn forget(&mut self) {
        while let Some((&port, _)) = self.connections.first_key_value() {
            self.bury(port);
        }
        self.replies.clear();
        self.starved = false;
    }
}

impl VirtioDevice for Vsock {
    fn kind(&self) -> u32 {
        VIRTIO_ID_VSOCK
    }

    fn queue_sizes(&self) -> &[u16] {
        &[128, 128, 16]
    }

    /// The guest's context id.
    fn config(&self) -> Vec<u8> {
        u64::from(self.connector.cid()).to_le_bytes().to_vec()
    }

    fn init(&mut self, ops: &mut EventOps<'_>) {
        // As for the queues' own descriptors.
        ops.add(Events::with_data(self.connector.wake(), WAKE, EventSet::IN)).expect("a new epoll takes an eventfd");
    }

    fn notified(&mut self, index: usize, queues: &mut Queues<'_>, ops: &mut EventOps<'_>) -> Result<(), Broken> {
        self.starved &= index != RX;
        self.go_on(queues, ops)
    }

    fn ready(&mut self, events: Events, queues: &mut Queues<'_>, ops: &mut EventOps<'_>) -> Result<(), Broken> {
        if events.data() == WAKE {
            // Empty if it was read for an earlier event.
            let _ = self.connector.wake().read();
        } else {
            self.stream(events.data(), events.event_set(), queues)?;
        }
        self.go_on(queues, ops)
    }

    fn defer(&mut self, events: Events, ops: &mut EventOps<'_>) {
        if events.data() == WAKE {
            let _ = self.connector.wake().read();
        } else if let Some(connection) = self.connections.get_mut(&events.data()) {
            unregister(connection, ops);
            connection.registered = None;
        }
        for dead in self.dead.drain(..) {
            unregister(&dead, ops);
        }
    }

    fn reset(&mut self) {
        self.forget();
        self.gate = Gate::Open;
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), String> {
        if !state.is_empty() {
            return Err("state for a device that has none".into());
        }
        self.forget();
        self.connector.take();
        self.gate = Gate::Closed;
        Ok(())
    }
}

/// A guest's buffer for one packet.
struct Buffer<'a> {
    head: u16,
    writer: virtio_queue::Writer<'a>,
    length: u32,
}

impl Buffer<'_> {
    /// For data.
    fn room(&self) -> Result<usize, Broken> {
        let room = self.writer.available_bytes().checked_sub(size_of::<Bytes>()).filter(|room| *room > 0);
        room.ok_or_else(|| Broken("a buffer too small for a packet".into()))
    }

    fn put(&mut self, header: &Header, data: &[u8]) -> Result<(), Broken> {
        let broken = |e: std::io::Error| Broken(e.to_string());
        self.writer.write_all(&header.encode()).map_err(broken)?;
        self.writer.write_all(data).map_err(broken)?;
        self.length = self.writer.bytes_written() as u32;
        Ok(())
    }
}

/// Waits for what `connection` wants now.
fn register(
    connection: &mut Connection,
    port: u32,
    open: bool,
    ops: &mut EventOps<'_>,
) -> Result<(), event_manager::Error> {
    let wanted = connection.interest(open);
    if wanted == connection.registered {
        return Ok(());
    }
    let events = |set| Events::with_data(&connection.stream, port, set);
    match (connection.registered, wanted) {
        (None, Some(set)) => ops.add(events(set))?,
        (Some(_), Some(set)) => ops.modify(events(set))?,
        (_, None) => unregister(connection, ops),
    }
    connection.registered = wanted;
    Ok(())
}

fn unregister(connection: &Connection, ops: &mut EventOps<'_>) {
    if connection.registered.is_some() {
        // It was added, and it is still open.
        let _ = ops.remove(Events::empty_raw(connection.stream.as_raw_fd()));
    }
}

/// The port after `port`; the last one means "any" to Linux.
fn following(port: u32) -> u32 {
    if port >= u32::MAX - 1 { FIRST_PORT } else { port + 1 }
}
