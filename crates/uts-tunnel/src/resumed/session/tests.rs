use super::*;
use crate::pipe;
use crate::resumed::client::{Turn, introduce};
use crate::resumed::{Hello, Sessions, Ticket, WINDOW_BYTES};
use crate::sockets::reset;
use crate::stream::read_answer;
use std::cell::Cell;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{DuplexStream, ReadBuf, duplex};
use tokio::net::{TcpListener, TcpStream};

/// A carrier that fails once so many bytes have gone either way.
struct Failing {
    stream: DuplexStream,
    left: usize,
}

impl Failing {
    fn is_cut(&mut self, bytes: usize) -> bool {
        self.left = self.left.saturating_sub(bytes);
        self.left == 0
    }
}

impl AsyncRead for Failing {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        let bytes = buf.filled().len() - before;
        if self.is_cut(bytes) { Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())) } else { polled }
    }
}

impl AsyncWrite for Failing {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, data);
        let bytes = if let Poll::Ready(Ok(bytes)) = polled { bytes } else { 0 };
        if self.is_cut(bytes) { Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())) } else { polled }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Bytes that tell their place.
fn pattern(bytes: usize) -> Vec<u8> {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    std::iter::repeat_with(|| numbers.below(256) as u8).take(bytes).collect()
}

/// Numbers from a seed (xorshift64*).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % most
    }
}

/// A server's and a client's end of a pair of sockets.
async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    let (a, b) = tokio::join!(TcpStream::connect(address), listener.accept());
    (a.expect("connected"), b.expect("accepted").0)
}

/// A client's end that is given carriers, and the server behind them.
struct Pair {
    sessions: Arc<Sessions>,
    session: Arc<Session>,
    ticket: Ticket,
    offers: mpsc::Sender<Result<Offer, Lost>>,
    number: Cell<u64>,
    is_new: Cell<bool>,
}

type Running = tokio::task::JoinHandle<Result<How, Lost>>;

const SILENCE: Duration = Duration::from_secs(3600);

impl Pair {
    fn new(bytes_max: usize) -> (Pair, mpsc::Receiver<Result<Offer, Lost>>) {
        let (offers, taken) = mpsc::channel(4);
        let pair = Pair {
            sessions: Sessions::new(1),
            session: Arc::new(Session::new(bytes_max)),
            ticket: Ticket::generate().expect("random bytes"),
            offers,
            number: Cell::new(0),
            is_new: Cell::new(true),
        };
        (pair, taken)
    }

    fn run(&self, application: TcpStream, mut offers: mpsc::Receiver<Result<Offer, Lost>>) -> Running {
        let session = self.session.clone();
        tokio::spawn(async move {
            let mut application = application;
            let (from, to) = application.split();
            let ended = session.run(from, to, &mut offers, SILENCE, |_| {}).await;
            if ended != Ok(How::Orderly) {
                reset(application);
            }
            ended
        })
    }

    /// Has the server take a carrier. Returns what becomes of the stream if it begins.
    async fn accept(
        &self,
        carrier: DuplexStream,
        service: &Cell<Option<TcpStream>>,
        bytes_max: usize,
    ) -> Option<Running> {
        let (mut recv, send) = tokio::io::split(carrier);
        let hello = pipe::read_request(&mut recv).await.ok()?.hello.expect("it outlives its carrier");
        let begun = self.sessions.take(("client", ""), &hello, Carrier::pipe(send, recv), "there").await?;
        let service = service.take().expect("begun once");
        Some(tokio::spawn(async move {
            begun.run(service, &Session::new(bytes_max), SILENCE, |_| {}, |_| {}).await
        }))
    }

    /// Gives the client a carrier that fails after so many bytes. Returns whether it was taken.
    async fn connect(
        &self,
        left: usize,
        service: &Cell<Option<TcpStream>>,
        bytes_max: usize,
    ) -> (bool, Option<Running>) {
        let (near, far) = duplex(20_000);
        let (recv, send) = tokio::io::split(Failing { stream: near, left });
        self.number.set(self.number.get() + 1);
        let turn = Turn { number: self.number.get(), is_new: self.is_new.get(), silence: SILENCE };
        let asked = introduce(&self.session, ("ssh", &self.ticket), turn, Carrier::pipe(send, recv), "here");
        let (asked, begun) = tokio::join!(asked, self.accept(far, service, bytes_max));
        let offer = asked.ok().and_then(Result::ok);
        let is_taken = offer.is_some();
        if let Some(offer) = offer {
            self.is_new.set(false);
            // Where it has ended, it has.
            let _ = self.offers.send(Ok(offer)).await;
        }
        (is_taken, begun)
    }
}

/// Carriers fail, or are replaced, after random numbers of bytes. Both ends say much, and one of
/// them listens late.
#[tokio::test]
async fn nothing_is_lost_or_doubled_whatever_becomes_of_the_carriers() {
    for seed in 1..=30_u64 {
        let mut numbers = Numbers(seed);
        let bytes_max = 1 << numbers.below(12) << 8;
        let (pair, offers) = Pair::new(bytes_max);
        let ((near, client), (far, service)) = (sockets().await, sockets().await);
        let service = Cell::new(Some(service));
        let mut ends = vec![pair.run(client, offers)];
        let said = [pattern(numbers.below(700_000) as usize), pattern(numbers.below(700_000) as usize)];
        let late = numbers.below(2) == 1;
        let applications =
            [(near, &said[0], &said[1]), (far, &said[1], &said[0])].map(|(socket, says, hears)| {
                let (says, hears) = (says.clone(), hears.clone());
                tokio::spawn(async move {
                    let (mut from, mut to) = socket.into_split();
                    let saying = tokio::spawn(async move {
                        to.write_all(&says).await.expect("it goes on");
                        to.shutdown().await.expect("it goes on");
                        to
                    });
                    if late {
                        sleep(Duration::from_millis(20)).await;
                    }
                    let mut heard = Vec::new();
                    from.read_to_end(&mut heard).await.expect("an end in order");
                    assert!(heard == hears, "{} of {} bytes", heard.len(), hears.len());
                    saying.await.expect("said")
                })
            });
        let mut carriers = 0;
        while !ends[0].is_finished() {
            assert!(carriers < 5000, "seed {seed} does not end");
            carriers += 1;
            let left = 1 + numbers.below(80_000) as usize;
            let (_, begun) = pair.connect(left, &service, bytes_max).await;
            ends.extend(begun);
            for _ in 0..numbers.below(60) {
                tokio::task::yield_now().await;
            }
            if numbers.below(4) == 0 {
                sleep(Duration::from_millis(2)).await;
            }
        }
        for ended in ends {
            // The last words of the other end may have gone with their carrier.
            let ended = timeout(Duration::from_secs(5), ended).await;
            assert!(matches!(ended, Ok(Ok(Ok(How::Orderly))) | Err(_)), "seed {seed}: {ended:?}");
        }
        for application in applications {
            application.await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}

#[tokio::test]
async fn who_writes_without_a_carrier_is_stopped_and_not_dropped() {
    let (pair, offers) = Pair::new(10_000);
    let ((mut near, client), (mut far, service)) = (sockets().await, sockets().await);
    let service = Cell::new(Some(service));
    let ended = pair.run(client, offers);
    let (_, begun) = pair.connect(usize::MAX, &service, 10_000).await;
    near.write_all(b"first").await.expect("written");
    far.read_exact(&mut [0; 5]).await.expect("carried");
    // Both applications say what is more than both ends and the system hold.
    let data = pattern(16 << 20);
    let saying = tokio::spawn({
        let data = data.clone();
        async move {
            near.write_all(&data).await.expect("it goes on");
            near
        }
    });
    sleep(Duration::from_millis(300)).await;
    assert!(!saying.is_finished());
    assert_eq!(pair.session.memory().room(), 0);
    let mut heard = vec![0; data.len()];
    far.read_exact(&mut heard).await.expect("carried");
    assert!(heard == data);
    drop(saying.await.expect("said"));
    drop(far);
    for ended in [ended, begun.expect("begun")] {
        assert_eq!(
            timeout(Duration::from_secs(10), ended).await.expect("in time").expect("no panic").map(|_| ()),
            Ok(())
        );
    }
}

#[tokio::test]
async fn the_end_of_an_application_that_fails_is_a_reset_at_the_other_end() {
    let (pair, offers) = Pair::new(WINDOW_BYTES);
    let ((mut near, client), (mut far, service)) = (sockets().await, sockets().await);
    let service = Cell::new(Some(service));
    let ended = pair.run(client, offers);
    let (_, begun) = pair.connect(usize::MAX, &service, WINDOW_BYTES).await;
    far.write_all(b"last words").await.expect("written");
    near.write_all(b"x").await.expect("written");
    far.read_exact(&mut [0]).await.expect("carried");
    reset(far);
    let mut heard = Vec::new();
    let error = near.read_to_end(&mut heard).await.expect_err("no end in order");
    assert_eq!((error.kind(), &heard[..]), (io::ErrorKind::ConnectionReset, &b"last words"[..]));
    assert_eq!(ended.await.expect("no panic"), Ok(How::Reset));
    assert_eq!(begun.expect("begun").await.expect("no panic"), Ok(How::Reset));
}

#[tokio::test]
async fn a_stream_is_its_clients_and_no_others() {
    let (pair, offers) = Pair::new(1000);
    let ((mut near, client), (mut far, service)) = (sockets().await, sockets().await);
    let service = Cell::new(Some(service));
    let _ended = pair.run(client, offers);
    let (is_taken, begun) = pair.connect(usize::MAX, &service, 1000).await;
    assert!(is_taken && begun.is_some());
    near.write_all(b"ab").await.expect("written");
    far.read_exact(&mut [0; 2]).await.expect("carried");
    let asked = async |client: &str, hello: Hello| {
        let (near, far) = duplex(1000);
        let (recv, send) = tokio::io::split(far);
        let begun = pair.sessions.take((client, ""), &hello, Carrier::pipe(send, recv), "there").await;
        assert!(begun.is_none());
        let mut near = near;
        read_answer(&mut near).await.expect("an answer").map_err(|refused| refused.to_string())
    };
    let hello = |ticket: &Ticket, number, received| Hello {
        ticket: ticket.clone(),
        is_new: false,
        number,
        received,
        window: 9,
        silence_s: 9,
    };
    let other = Ticket::generate().expect("random bytes");
    for (client, ticket) in [("client", &other), ("another", &pair.ticket)] {
        let refused = asked(client, hello(ticket, 9, 0)).await.expect_err("it is not there");
        assert!(refused.contains("not known here any more"), "{refused}");
    }
    let new = Hello { is_new: true, ..hello(&other, 9, 0) };
    assert!(asked("client", new).await.expect_err("one stream").contains("which is the most"));
    // It has received what was never sent: then nothing is right any more, but for who comes again.
    assert!(asked("client", hello(&pair.ticket, 9, 1)).await.expect_err("a lie").contains("the peer has 1"));
    pair.number.set(9);
    assert!(pair.connect(usize::MAX, &service, 1000).await.0);
    near.write_all(b"cd").await.expect("written");
    let mut heard = [0; 2];
    far.read_exact(&mut heard).await.expect("carried");
    assert_eq!(&heard, b"cd");
}

/// Streams of one owner, none of which says anything.
struct Crowd {
    sessions: Arc<Sessions>,
    room: Arc<Session>,
}

impl Crowd {
    /// Has a client begin a stream, or go on with it. Returns its end of the carrier, the stream if
    /// it begins, and why it is refused.
    async fn ask(
        &self,
        owner: &str,
        ticket: &Ticket,
        is_new: bool,
    ) -> (DuplexStream, Option<Running>, Result<(), Refused>) {
        let (near, far) = duplex(1000);
        let (recv, send) = tokio::io::split(far);
        let hello = Hello {
            ticket: ticket.clone(),
            is_new,
            number: if is_new { 1 } else { 2 },
            received: 0,
            window: 9,
            silence_s: 9,
        };
        let carrier = Carrier::pipe(send, recv);
        let begun = self.sessions.take(("client", owner), &hello, carrier, "there").await;
        let running = match begun {
            Some(begun) => {
                let (service, room) = (sockets().await.0, self.room.clone());
                Some(tokio::spawn(async move { begun.run(service, &room, SILENCE, |_| {}, |_| {}).await }))
            }
            None => None,
        };
        let mut near = near;
        let answer = read_answer(&mut near).await.expect("an answer").map(drop);
        (near, running, answer)
    }
}

/// The bound is each owner's. The stream that nothing has carried for longest makes room; who is
/// carried does not.
#[tokio::test]
async fn streams_that_nothing_carries_make_room_for_others_of_their_owner() {
    let crowd = Crowd { sessions: Sessions::new(2), room: Arc::new(Session::new(100)) };
    let tickets: Vec<Ticket> = (0..5).map(|_| Ticket::generate().expect("random bytes")).collect();
    let mut running = Vec::new();
    let mut carriers = Vec::new();
    for ticket in &tickets[..2] {
        let (carrier, stream, answer) = crowd.ask("a", ticket, true).await;
        assert_eq!(answer, Ok(()));
        carriers.push(carrier);
        running.extend(stream);
    }
    let (_, _, refused) = crowd.ask("a", &tickets[2], true).await;
    assert_eq!(refused.expect_err("both are carried").kind, crate::stream::Kind::NotKept);
    let (_other, stream, answer) = crowd.ask("b", &tickets[3], true).await;
    assert_eq!(answer, Ok(()), "another owner has room of its own");
    running.extend(stream);
    drop(carriers.remove(0));
    while crowd.sessions.carried("a") > 1 {
        sleep(Duration::from_millis(1)).await;
    }
    assert!(!crowd.sessions.make_room("b", false).await, "its own is carried");
    let (_third, _, answer) = crowd.ask("a", &tickets[2], true).await;
    assert_eq!(answer, Ok(()));
    let why = timeout(Duration::from_secs(10), running.remove(0)).await.expect("in time").expect("no panic");
    assert!(why.expect_err("it has made room").0.contains("made room"));
    let (_, _, refused) = crowd.ask("a", &tickets[0], false).await;
    assert!(refused.expect_err("it is gone").why.contains("not known here"));
    let (second, _, answer) = crowd.ask("a", &tickets[1], false).await;
    assert_eq!(answer, Ok(()), "who is carried stays");
    // Where all there is is short, who has one stream alone may have it for one of another's.
    drop((carriers, second));
    while crowd.sessions.carried("a") > 1 {
        sleep(Duration::from_millis(1)).await;
    }
    assert!(crowd.sessions.make_room("b", true).await);
    assert_eq!(crowd.sessions.carried("a"), 1);
    assert!(!crowd.sessions.make_room("b", true).await, "all are carried");
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_carriers_is_kept_as_long_as_was_said() {
    let session = Session::new(100);
    let (_kept, mut offers) = offers::<&str>();
    let begun = Instant::now();
    let (near, _far) = duplex(10);
    let (from, to) = tokio::io::split(near);
    let days = Duration::from_secs(7 * 24 * 3600);
    let ended = session.run(from, to, &mut offers, days, |_| {}).await;
    assert_eq!(ended, Err(Lost("no way to the other end for 7 days".into())));
    assert!(begun.elapsed() >= days && begun.elapsed() < days + Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_carrier_that_brings_nothing_is_told_and_so_is_one_that_does_again() {
    let session = Session::new(100);
    let (offers, mut taken) = offers();
    let (near, mut far) = duplex(1000);
    let (recv, send) = tokio::io::split(near);
    let welcome = Welcome { received: 0, begins: 0, window: 100 };
    let carrier = Carrier::pipe(send, recv);
    let offer = Offer { carrier, number: 1, way: "here", stand: Stand::Answered(welcome) };
    offers.send(Ok(offer)).await.unwrap_or_else(|_| panic!("taken"));
    let (application, mut outer) = duplex(1000);
    let (from, to) = tokio::io::split(application);
    let news = std::sync::Mutex::new(Vec::new());
    let begun = Instant::now();
    let told =
        |news_: News| news.lock().expect("sound").push((begun.elapsed().as_secs(), format!("{news_:?}")));
    let running = session.run(from, to, &mut taken, SILENCE, told);
    let peer = async {
        // Who expects nothing asks nothing.
        sleep(Duration::from_secs(100)).await;
        outer.write_all(b"a").await.expect("written");
        sleep(Duration::from_secs(20)).await;
        let mut said = [0; 5];
        far.read_exact(&mut said).await.expect("said");
        // A byte of data, and one question.
        assert_eq!(said, [0, 0, 1, b'a', 4]);
        far.write_all(&[5]).await.expect("written");
        sleep(Duration::from_millis(500)).await;
        far.write_all(&[1, 0, 0, 0, 0, 0, 0, 0, 1]).await.expect("written");
        // Another question from outside is answered within a round trip.
        let asked = async {
            far.read_exact(&mut said[..1]).await.expect("said");
            far.write_all(&[5]).await.expect("written");
        };
        let (silence, ()) = tokio::join!(session.silence(Duration::from_secs(1)), asked);
        assert_eq!(silence, Duration::ZERO);
        sleep(Duration::from_secs(100)).await;
        let silence = session.silence(Duration::from_secs(1)).await;
        assert!(silence >= Duration::from_secs(101), "{silence:?}");
    };
    tokio::select! {
        ended = running => panic!("it has ended: {ended:?}"),
        () = peer => {}
    }
    let news: Vec<_> = news.into_inner().expect("sound");
    let expected = [(0, "Carried(\"here\")"), (104, "Stalled"), (120, "Goes")];
    assert_eq!(news, expected.map(|(at, news)| (at, news.to_owned())));
}

/// Days of sleep, in virtual time: the carrier is gone, both ends have more to say than they keep,
/// and another carrier comes three days later.
#[tokio::test(start_paused = true)]
async fn a_stream_goes_on_three_days_later_without_a_byte_lost() {
    const ROOM: usize = 50_000;
    let (client, server) = (Session::new(ROOM), Session::new(ROOM));
    let (days, week) = (Duration::from_secs(3 * 24 * 3600), Duration::from_secs(7 * 24 * 3600));
    let ((to_client, mut offers), (to_server, mut taken)) = (offers(), offers());
    let ticket = Ticket::generate().expect("random bytes");
    let carry = async |number: u64, left: usize| {
        let (near, far) = duplex(20_000);
        let (recv, send) = tokio::io::split(Failing { stream: near, left });
        let turn = Turn { number, is_new: number == 1, silence: week };
        let asked = introduce(&client, ("ssh", &ticket), turn, Carrier::pipe(send, recv), "here");
        let served = async {
            let (mut recv, send) = tokio::io::split(far);
            let hello = pipe::read_request(&mut recv).await.expect("a request").hello.expect("a hello");
            assert_eq!(hello.silence(), week);
            let stand = Stand::Asked { received: hello.received, window: hello.window };
            let offer = Offer { carrier: Carrier::pipe(send, recv), number, way: "there", stand };
            to_server.send(Ok(offer)).await.unwrap_or_else(|_| panic!("it lives"));
        };
        let (offer, ()) = tokio::join!(asked, served);
        let offer = offer.expect("carried").expect("taken");
        to_client.send(Ok(offer)).await.unwrap_or_else(|_| panic!("it lives"));
    };
    let said = [pattern(300_000), pattern(200_000)];
    let ((near, near_inner), (far, far_inner)) = (duplex(1000), duplex(1000));
    let application = async |end: DuplexStream, says: &[u8], hears: &[u8]| {
        let (mut from, mut to) = tokio::io::split(end);
        let saying = async {
            to.write_all(says).await.expect("it goes on");
            to.shutdown().await.expect("it goes on");
        };
        let mut heard = Vec::new();
        let (_, read) = tokio::join!(saying, from.read_to_end(&mut heard));
        read.expect("an end in order");
        assert!(heard == hears, "{} of {} bytes", heard.len(), hears.len());
    };
    let begun = Instant::now();
    let sleeping = async {
        carry(1, 60_000).await;
        sleep(days).await;
        carry(2, usize::MAX).await;
    };
    let (near_from, near_to) = tokio::io::split(near_inner);
    let (far_from, far_to) = tokio::io::split(far_inner);
    let (one, other, (), (), ()) = tokio::join!(
        client.run(near_from, near_to, &mut offers, week, |_| {}),
        server.run(far_from, far_to, &mut taken, week, |_| {}),
        application(near, &said[0], &said[1]),
        application(far, &said[1], &said[0]),
        sleeping,
    );
    assert_eq!((one, other), (Ok(How::Orderly), Ok(How::Orderly)));
    assert!(begun.elapsed() >= days);
}
