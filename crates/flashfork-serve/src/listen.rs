//! Connections of clients: so many at a time, and where there is no room none for those that say nothing.

use crate::{bodies::PATIENCE, locked};
use axum::{Router, http::StatusCode};
use hyper::{
	server::conn::http1,
	service::{Service, service_fn},
};
use hyper_util::{
	rt::{TokioIo, TokioTimer},
	service::TowerToHyperService,
};
use std::{
	collections::BTreeMap,
	sync::{Arc, Mutex},
	time::Duration,
};
use tokio::{
	io::{AsyncRead, AsyncWrite},
	net::{TcpListener, TcpStream},
	sync::{Notify, OwnedSemaphorePermit, Semaphore, watch},
	time::{sleep, timeout},
};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

/// Most bytes of what stands before a request's body, which are in memory until they are whole.
pub const MOST_HEAD: usize = 64 << 10;

/// How long who comes waits for a place that another is to leave, before one more is.
const MOMENT: Duration = Duration::from_millis(100);

/// Answers all who come until `ended`, and then those who have asked; `most` at a time.
pub async fn serve(
	listener: TcpListener,
	tls: Option<TlsAcceptor>,
	router: Router,
	most: usize,
	ended: impl Future<Output = ()>,
) {
	let (room, idle) = (Arc::new(Semaphore::new(most)), Arc::default());
	let (mut ended, ending) = (std::pin::pin!(ended), watch::Sender::new(false));
	loop {
		let next = async {
			let accepted = listener.accept().await;
			(place(&room, &idle, most / 4).await, accepted)
		};
		let (place, accepted) = tokio::select! {
			next = next => next,
			() = &mut ended => break,
		};
		match accepted {
			Ok((stream, _)) => {
				let (router, tls, ending) = (router.clone(), tls.clone(), ending.subscribe());
				let asker = Asker::new(idle.clone());
				tokio::spawn(async move {
					attend(stream, tls, router, ending, &asker).await;
					drop(place);
				});
			}
			// Too few descriptors or too little memory: some are given back as others end.
			Err(_) => sleep(Duration::from_millis(100)).await,
		}
	}
	// Nobody connects any more to who doesn't answer.
	drop(listener);
	ending.send_replace(true);
	let _ = room.acquire_many(most as u32).await;
}

/// One for who has come; who has had one and asks nothing loses it if there is none.
async fn place(room: &Arc<Semaphore>, idle: &Mutex<Idle>, few: usize) -> Option<OwnedSemaphorePermit> {
	loop {
		if let Ok(place) = room.clone().try_acquire_owned() {
			return Some(place);
		}
		locked(idle).cut_one(few);
		if let Ok(place) = timeout(MOMENT, room.clone().acquire_owned()).await {
			return place.ok();
		}
	}
}

/// Connections on which nothing is asked now: those that were never let in, in the order in which they came, and then
/// the others, in that in which they asked last.
#[derive(Default)]
struct Idle {
	next: u64,
	all: BTreeMap<(bool, u64), Arc<Notify>>,
}

impl Idle {
	/// Cuts one that was never let in, if there are more than `few`: these would cut each other, each as it comes.
	fn cut_one(&mut self, few: usize) {
		let first_let_in = self.all.range((true, 0)..).next().map(|(key, _)| *key);
		let first = self.all.keys().next().copied();
		let others = self.all.range(..(true, 0)).count();
		let cut = first_let_in.filter(|_| others <= few).or(first).and_then(|key| self.all.remove(&key));
		if let Some(cut) = cut {
			cut.notify_one();
		}
	}
}

/// Who has a connection.
struct Asker {
	idle: Arc<Mutex<Idle>>,
	cut: Arc<Notify>,
	/// Whether it was let in, and its number there.
	key: Mutex<(bool, u64)>,
}

impl Asker {
	fn new(idle: Arc<Mutex<Idle>>) -> Asker {
		let asker = Asker { idle, cut: Arc::default(), key: Mutex::default() };
		asker.waits(false);
		asker
	}

	fn waits(&self, is_let_in: bool) {
		let mut idle = locked(&self.idle);
		idle.next += 1;
		let mut key = locked(&self.key);
		*key = (is_let_in, idle.next);
		idle.all.insert(*key, self.cut.clone());
	}

	/// It is not cut off in its request, also if it was to be a moment before.
	fn asks(&self) {
		let mut idle = locked(&self.idle);
		let mut key = locked(&self.key);
		idle.all.remove(&*key);
		key.0 = true;
	}
}

impl Drop for Asker {
	fn drop(&mut self) {
		self.asks();
	}
}

/// Who breaks off, asks nonsense or has no certificate has been told or is gone.
async fn attend(
	stream: TcpStream,
	tls: Option<TlsAcceptor>,
	router: Router,
	ending: watch::Receiver<bool>,
	asker: &Asker,
) {
	if stream.set_nodelay(true).is_err() {
		return;
	}
	let Some(tls) = tls else {
		let _ = talk(stream, router, ending, asker).await;
		return;
	};
	tokio::select! {
		stream = timeout(PATIENCE, tls.accept(stream)) => if let Ok(Ok(stream)) = stream {
			let _ = talk(stream, router, ending, asker).await;
		},
		() = asker.cut.notified() => {}
	}
}

async fn talk(
	stream: impl AsyncRead + AsyncWrite + Unpin,
	router: Router,
	mut ending: watch::Receiver<bool>,
	asker: &Asker,
) -> hyper::Result<()> {
	// Nobody has to read what is answered; but then it is closed.
	let mut stream = TimeoutStream::new(stream);
	stream.set_write_timeout(Some(PATIENCE));
	let stream = Box::pin(stream);
	let router = TowerToHyperService::new(router);
	let answers = service_fn(|request| {
		asker.asks();
		let answer = router.call(request);
		async {
			let answer = answer.await;
			let refused = |status| [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status);
			asker.waits(!answer.as_ref().is_ok_and(|answer| refused(answer.status())));
			answer
		}
	});
	let mut connection = std::pin::pin!(
		http1::Builder::new()
			.timer(TokioTimer::new())
			.max_buf_size(MOST_HEAD)
			.header_read_timeout(PATIENCE)
			.serve_connection(TokioIo::new(stream), answers)
	);
	tokio::select! {
		done = &mut connection => return done,
		_ = ending.wait_for(|ending| *ending) => connection.as_mut().graceful_shutdown(),
		() = asker.cut.notified() => if locked(&asker.key).0 {
			// It may be reading what it was answered.
			connection.as_mut().graceful_shutdown();
		} else {
			return Ok(());
		},
	}
	connection.await
}
