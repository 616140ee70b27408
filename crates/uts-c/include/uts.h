/*
 * UTS for C: the Universal Transport System, a transport over UDP that is assembled from mechanisms
 * and refitted in flight. docs/c.md is the guide.
 *
 * This file is made from crates/uts-c. Do not change it.
 *
 * Results. Functions return UTS_OK (0), UTS_AGAIN or UTS_END (positive), or an error (negative, see
 * uts_code). uts_error() has the text of the last error in the calling thread, uts_code_name() the name
 * of a code. No fault of the library reaches the program as a panic or an unwinding stack: it is
 * UTS_EPANIC.
 *
 * Handles. A handle is a number in the form of an address, which is never followed. NULL, a handle of
 * another kind, one that was closed and one that never was are UTS_EHANDLE. Each handle is closed once,
 * by uts_close.
 *
 * Waiting. A call that may wait has timeout_ms: -1 waits for good, 0 tries once, else it is milliseconds.
 * A call that returned UTS_AGAIN puts one entry into its context's queue when it is worth calling again:
 * uts_poll takes it, and uts_context_fd is readable meanwhile.
 *
 * Threads. A context has a thread of its own, which carries its connections while no call is made. Any
 * function may be called from any thread. Of a flow, one thread may send and another receive at once; two
 * that send, or that receive, are UTS_EBUSY, and so are two in the same call with any other handle.
 * uts_close wakes who waits with that handle. Signals of the process go to the program's threads alone.
 * Handles do not live through fork: a child makes a context of its own. No function is for signal handlers.
 *
 * Memory. What is handed over is read during the call alone: text ends with a zero and is UTF-8, an
 * address leads to as many bytes as its size says, and nobody changes them meanwhile. What is to be
 * filled is written during the call alone, and nobody else reads it meanwhile. Sizes of 0 allow NULL.
 */
#ifndef UTS_H
#define UTS_H

#include <stddef.h>
#include <stdint.h>

/*
 Bytes that the text of an event has at most, the zero included.
 */
#define UTS_EVENT_TEXT_MAX 1024

/*
 The message's lifetime counts.
 */
#define UTS_HAS_LIFETIME 1

/*
 The message's key counts.
 */
#define UTS_HAS_KEY 2

/*
 The message's checksum_len counts.
 */
#define UTS_HAS_CHECKSUM_LEN 4

/*
 The message passes all others of its flow: at most 16 bytes, and "uts.expedited" is "on" at both
 ends.
 */
#define UTS_EXPEDITED 8

/*
 Results of functions. What is negative is an error, and uts_error() has its text.
 */
typedef enum {
    /*
     Done.
     */
    UTS_OK = 0,
    /*
     Not yet, and the call was not to wait. An entry of the context's queue says when to call
     again.
     */
    UTS_AGAIN = 1,
    /*
     Nothing more comes: the flow, the connection or the listener has ended in order.
     */
    UTS_END = 2,
    /*
     An argument cannot be: NULL, not UTF-8, out of range.
     */
    UTS_EINVAL = -1,
    /*
     The handle is of another kind, or was closed, also while the call waited.
     */
    UTS_EHANDLE = -2,
    /*
     Another thread is in the same call with this handle.
     */
    UTS_EBUSY = -3,
    /*
     The time that was given has passed.
     */
    UTS_ETIMEDOUT = -4,
    /*
     The memory that was given is too small. Nothing was taken.
     */
    UTS_ETOOSMALL = -5,
    /*
     No such property, no such value, or it contradicts others.
     */
    UTS_EPROPERTY = -6,
    /*
     The address is none, or the host has none.
     */
    UTS_EADDRESS = -7,
    /*
     Nobody answers.
     */
    UTS_EUNREACHABLE = -8,
    /*
     The peer is not the one that was meant, or is not known.
     */
    UTS_EUNTRUSTED = -9,
    /*
     The peer does not let this end in.
     */
    UTS_EREFUSED = -10,
    /*
     The connection is not established yet.
     */
    UTS_ENOTCONN = -11,
    /*
     The connection has ended.
     */
    UTS_ECLOSED = -12,
    /*
     The peer has reset the flow.
     */
    UTS_ERESET = -13,
    /*
     The peer wants no more of the flow.
     */
    UTS_ESTOPPED = -14,
    /*
     This end has ended the flow.
     */
    UTS_EFINISHED = -15,
    /*
     The message is too large, or damaged, or there are bytes where a message was asked for.
     */
    UTS_EMESSAGE = -16,
    /*
     A file, a socket or a thread cannot be had.
     */
    UTS_ESYSTEM = -17,
    /*
     A fault of the library, which was kept from the program.
     */
    UTS_EPANIC = -18,
} uts_code;

/*
 Operations for which entries come, each named for the function that is worth calling again.
 */
typedef enum {
    /*
     uts_connected
     */
    UTS_ON_CONNECTED = 1,
    /*
     uts_accept
     */
    UTS_ON_ACCEPT = 2,
    /*
     uts_open_flow
     */
    UTS_ON_OPEN_FLOW = 3,
    /*
     uts_accept_flow
     */
    UTS_ON_ACCEPT_FLOW = 4,
    /*
     uts_recv, uts_read, uts_recv_buffer
     */
    UTS_ON_RECV = 5,
    /*
     uts_send, uts_write
     */
    UTS_ON_SEND = 6,
    /*
     uts_finished
     */
    UTS_ON_FINISHED = 7,
    /*
     uts_recv_expedited
     */
    UTS_ON_RECV_EXPEDITED = 8,
    /*
     uts_next_event
     */
    UTS_ON_EVENT = 9,
    /*
     uts_ended
     */
    UTS_ON_ENDED = 10,
} uts_operation;

/*
 Kinds of events. Others may follow in later versions.
 */
typedef enum {
    /*
     Of a kind that this version has no name for; the text says what.
     */
    UTS_EVENT_OTHER = 0,
    /*
     This end asks for other mechanisms. Text: what was seen; what changes; what it expects.
     */
    UTS_EVENT_REQUESTED = 1,
    /*
     The peer asked, and this end agreed. Text: what changes.
     */
    UTS_EVENT_GRANTED = 2,
    /*
     The profile that this end asked for is in use. Value: nanoseconds that it took. Text: the
     new profile.
     */
    UTS_EVENT_COMPLETED = 3,
    /*
     The peer refused; all stays as it was. Text: why.
     */
    UTS_EVENT_REFUSED = 4,
    /*
     The peer did not answer; all stays as it was.
     */
    UTS_EVENT_FAILED = 5,
    /*
     Effect of an exchange, beside what was expected. Text: the comparison.
     */
    UTS_EVENT_BROUGHT = 6,
    /*
     The path carries packets of another size. Value: bytes of UDP payload.
     */
    UTS_EVENT_PACKET_SIZE = 7,
    /*
     The peer is expected to answer, and does not. Value: for how many nanoseconds.
     */
    UTS_EVENT_SILENT = 8,
    /*
     It was heard again. Value: for how many nanoseconds it had been silent.
     */
    UTS_EVENT_HEARD = 9,
    /*
     An end is elsewhere. Value: 1 = the peer, 0 = this end. Text: where the peer is.
     */
    UTS_EVENT_MOVED = 10,
    /*
     A property has no effect under the profile in use. Text: its name.
     */
    UTS_EVENT_NO_EFFECT = 11,
    /*
     The connection has ended; nothing follows. Value: the code of who closed it. Text: why.
     */
    UTS_EVENT_CLOSED = 12,
} uts_event_kind;

/*
 Connection to one peer.
 */
typedef struct uts_connection uts_connection;

/*
 A thread of the library's, which carries all connections that are made from it, and a queue of
 entries.
 */
typedef struct uts_context uts_context;

/*
 Flow of a connection: bytes or messages, both ways.
 */
typedef struct uts_flow uts_flow;

/*
 Accepts connections at an address.
 */
typedef struct uts_listener uts_listener;

/*
 Options of clients, servers and flows. uts_set sets them by name.
 */
typedef struct uts_options uts_options;

/*
 Entry of a context's queue: a function that returned UTS_AGAIN is worth calling again.
 */
typedef struct {
    /*
     Function to call: a value of uts_operation.
     */
    int operation;
    /*
     Zero.
     */
    int reserved;
    /*
     Handle that it was called with.
     */
    void *handle;
    /*
     Value that uts_set_user has kept with that handle.
     */
    void *user;
} uts_entry;

/*
 Something that happened on a connection.
 */
typedef struct {
    /*
     Its kind: a value of uts_event_kind.
     */
    int kind;
    /*
     Zero.
     */
    int reserved;
    /*
     Number, as its kind says.
     */
    uint64_t value;
    /*
     Words, with a zero behind them. Longer ones are cut.
     */
    char text[UTS_EVENT_TEXT_MAX];
} uts_event;

/*
 A path, for uts_explain.
 */
typedef struct {
    /*
     Microseconds there and back.
     */
    uint64_t rtt_us;
    /*
     Bits per second; 0 = not known.
     */
    uint64_t rate_bps;
    /*
     Share of packets lost, 0 to 1.
     */
    double loss;
} uts_path;

/*
 Way in which a message is sent. All zero = as the properties of its flow say.
 */
typedef struct {
    /*
     Which of the following count: UTS_HAS_…, and UTS_EXPEDITED. Others are an error.
     */
    uint32_t flags;
    /*
     Order is kept among messages of one key, with "uts.profile.sequencing" "per-key".
     */
    uint32_t key;
    /*
     Microseconds after which it is worth nothing, and is given up (msgLifetime).
     */
    uint64_t lifetime_us;
    /*
     Bytes of it, from the first on, that have to arrive undamaged (msgChecksumLen).
     */
    uint32_t checksum_len;
    /*
     Zero.
     */
    uint32_t reserved;
} uts_message_options;

/*
 Something received, in memory of the library's: uts_recv_buffer gives it, uts_release ends it.
 */
typedef struct {
    /*
     Its bytes. They do not change.
     */
    const uint8_t *data;
    /*
     Number of bytes.
     */
    size_t size;
    /*
     Bytes, from the first on, that are as they were sent: all, unless "recvChecksumLen" allows
     less.
     */
    size_t right_bytes;
    /*
     Position of the first in the flow, where bytes came and not a message.
     */
    uint64_t position;
    /*
     1 = it is a message, 0 = it is bytes.
     */
    int is_message;
    /*
     Zero.
     */
    int reserved;
    /*
     Handle of the memory.
     */
    void *owner;
} uts_buffer;

/*
 The time of a message, where the sender asks for "uts.playoutDelay": uts_buffer_timing gives it.
 */
typedef struct {
    /*
     When it was made, in microseconds by the sender's clock. Only differences mean something, of
     all flows of a connection.
     */
    int64_t media_us;
    /*
     Microseconds that messages are held beyond the quickest way.
     */
    uint64_t delay_us;
    /*
     Microseconds from its making to its handing over, beyond the quickest way.
     */
    uint64_t age_us;
    /*
     Positions that are missing before it, in the order of the making: one for each byte, and one
     for each message. Something has to be shown in their place.
     */
    uint64_t missing;
    /*
     1 = it has a time, 0 = the sender has said none.
     */
    int is_timed;
    /*
     1 = it came too late for its time.
     */
    int is_late;
} uts_timing;

/*
 Figures of a connection; of one that has ended, as they were then. Later versions may have more
 behind these.
 */
typedef struct {
    /*
     Smoothed round trip in nanoseconds; 0 before one was measured.
     */
    uint64_t rtt_ns;
    /*
     Smallest round trip of the last while, in nanoseconds.
     */
    uint64_t rtt_min_ns;
    /*
     Mean deviation of the round trip, in nanoseconds.
     */
    uint64_t rtt_deviation_ns;
    /*
     Congestion window in bytes; UINT64_MAX without congestion control.
     */
    uint64_t window_bytes;
    /*
     Bytes that are under way.
     */
    uint64_t in_flight_bytes;
    /*
     Bits per second that the path was seen to deliver lately.
     */
    uint64_t rate_bps;
    /*
     Share of packets lost lately, 0 to 1.
     */
    double loss;
    /*
     Bytes that were handed over and that the peer has not acknowledged.
     */
    uint64_t undelivered_bytes;
    /*
     Nanoseconds for which the peer has been silent although something is expected of it; 0 = it
     is not.
     */
    uint64_t silence_ns;
    /*
     Packets sent.
     */
    uint64_t packets_sent;
    /*
     Bytes of UDP payload sent.
     */
    uint64_t bytes_sent;
    /*
     Packets received.
     */
    uint64_t packets_received;
    /*
     Bytes of UDP payload received.
     */
    uint64_t bytes_received;
    /*
     Packets lost.
     */
    uint64_t packets_lost;
    /*
     Bytes of flows sent, repetitions included.
     */
    uint64_t data_bytes_sent;
    /*
     Bytes of flows received, repetitions included.
     */
    uint64_t data_bytes_received;
    /*
     Bytes of flows that were sent again.
     */
    uint64_t bytes_repeated;
    /*
     Messages given up because their lifetime had passed.
     */
    uint64_t messages_expired;
    /*
     Exchanges of mechanisms.
     */
    uint64_t exchanges;
} uts_stats;

/*
 All of them, for who reads numbers.
 */
#define uts_code_ALL { UTS_OK, UTS_AGAIN, UTS_END, UTS_EINVAL, UTS_EHANDLE, UTS_EBUSY, UTS_ETIMEDOUT, UTS_ETOOSMALL, UTS_EPROPERTY, UTS_EADDRESS, UTS_EUNREACHABLE, UTS_EUNTRUSTED, UTS_EREFUSED, UTS_ENOTCONN, UTS_ECLOSED, UTS_ERESET, UTS_ESTOPPED, UTS_EFINISHED, UTS_EMESSAGE, UTS_ESYSTEM, UTS_EPANIC, }

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Text of the last error that a function has returned in this thread. Empty if there was none.
 It stays valid until another call in this thread fails.
 */
const char *uts_error(void);

/*
 Name of a code, as in this header; "unknown" for numbers that are none.
 */
const char *uts_code_name(int code);

/*
 Version of the library, such as "0.1.0".
 */
const char *uts_version(void);

/*
 Opens a connection.

 target: "host:port" or "[v6]:port". options: with "pin", "knownHosts" or "roots".
 timeout_ms: how long to wait; -1 = as long as the handshake may take.
 connection: where its handle goes. NULL in case of an error, also of UTS_ETIMEDOUT.
 Returns UTS_OK; with a timeout of 0 UTS_AGAIN, and a handle that uts_connected takes;
 UTS_EADDRESS, UTS_EUNREACHABLE, UTS_EUNTRUSTED, UTS_EREFUSED, UTS_ECLOSED, UTS_ETIMEDOUT,
 UTS_EPROPERTY, UTS_ESYSTEM, UTS_EHANDLE or UTS_EINVAL.
 */
int uts_connect(uts_context *context,
                const char *target,
                const uts_options *options,
                uts_connection **connection,
                int timeout_ms);

/*
 Waits until a connection that uts_connect has begun is established.

 Returns UTS_OK; UTS_AGAIN; UTS_ETIMEDOUT, and it can be called again; or as uts_connect. The
 handle has to be closed in case of an error as well.
 */
int uts_connected(uts_connection *connection, int timeout_ms);

/*
 Opens a flow, which goes both ways. The peer learns of it with the first data on it.

 options: properties of what is sent in it, and "flowPriority"; NULL = as the connection.
 timeout_ms: how long to wait while the peer allows no more flows.
 flow: where its handle goes; NULL if there is none.
 Returns UTS_OK; UTS_AGAIN; UTS_EPROPERTY, UTS_ECLOSED, UTS_ENOTCONN, UTS_ETIMEDOUT, UTS_EHANDLE,
 UTS_EBUSY or UTS_EINVAL. After UTS_AGAIN and UTS_ETIMEDOUT the next call goes on with the
 options that were given first.
 */
int uts_open_flow(uts_connection *connection, const uts_options *options, uts_flow **flow, int timeout_ms);

/*
 Waits for the next flow that the peer opens.

 timeout_ms: how long to wait; 0 = not at all, -1 = for good.
 flow: where its handle goes; NULL if there is none.
 Returns UTS_OK; UTS_AGAIN; UTS_END once the connection has ended; UTS_ENOTCONN, UTS_ETIMEDOUT,
 UTS_EHANDLE, UTS_EBUSY or UTS_EINVAL.
 */
int uts_accept_flow(uts_connection *connection, uts_flow **flow, int timeout_ms);

/*
 Closes a connection at once, and says why. What was not delivered is lost: call uts_finished
 first. The handle stays, and has to be closed.

 code: the program's own. reason: words for the peer; NULL = none.
 Returns UTS_OK, also if it has ended before and stays as it ended; UTS_ENOTCONN, UTS_EHANDLE or
 UTS_EINVAL.
 */
int uts_shutdown(uts_connection *connection, uint64_t code, const char *reason);

/*
 Waits for the end of a connection, and says why it came.

 code: that of the end that closed it; NULL if it is of no interest. is_peer: 1 if that was the
 peer, 0 if it was this end or the path; NULL likewise.
 text, size, needed: the reason in words, as of uts_get.
 Returns UTS_OK; UTS_AGAIN while it goes on; UTS_ETIMEDOUT, UTS_ETOOSMALL, UTS_ENOTCONN,
 UTS_EHANDLE, UTS_EBUSY or UTS_EINVAL.
 */
int uts_ended(uts_connection *connection,
              uint64_t *code,
              int *is_peer,
              char *text,
              size_t size,
              size_t *needed,
              int timeout_ms);

/*
 Goes on from another address of this host, such as "0.0.0.0:0". Flows go on, and nothing is
 lost.

 Returns UTS_OK; UTS_EADDRESS, UTS_ESYSTEM, UTS_ENOTCONN, UTS_EHANDLE or UTS_EINVAL. Nothing has
 changed in case of an error.
 */
int uts_migrate(uts_connection *connection, const char *address);

/*
 Has a connection move with this host from now on, when that reaches the peer by another of its
 addresses.
 */
int uts_follow_network(uts_connection *connection);

/*
 Starts a context. A program mostly needs one.

 context: where its handle goes; NULL in case of an error.
 Returns UTS_OK, UTS_EINVAL or UTS_ESYSTEM.
 */
int uts_context_new(uts_context **context);

/*
 Descriptor that is readable while the context's queue has entries: for poll, epoll, kqueue and
 event loops. It is the context's: do not read, write or close it.

 Returns -1 in case of an error.
 */
int uts_context_fd(const uts_context *context);

/*
 Takes entries from a context's queue, and waits for the first.

 entries: where they go, "most" of them at most. count: how many there are.
 timeout_ms: how long to wait; 0 = not at all, -1 = for good.
 Returns UTS_OK with one entry at least; UTS_AGAIN if there is none and the call was not to wait;
 UTS_ETIMEDOUT; UTS_EHANDLE, also if the context is closed meanwhile.
 */
int uts_poll(uts_context *context, uts_entry *entries, size_t most, size_t *count, int timeout_ms);

/*
 Waits for the next event of a connection. The first call also finds what happened before, up to
 256 events.

 event: where it goes.
 timeout_ms: how long to wait; 0 = not at all, -1 = for good.
 Returns UTS_OK; UTS_AGAIN; UTS_END behind UTS_EVENT_CLOSED; UTS_ENOTCONN, UTS_ETIMEDOUT,
 UTS_EHANDLE, UTS_EBUSY or UTS_EINVAL.
 */
int uts_next_event(uts_connection *connection, uts_event *event, int timeout_ms);

/*
 Says in a table what the selector would choose for what is asked, and why. Nothing is sent.

 handle: of options, or of a connection. path: the path; NULL = that of the connection as it was
 measured, or, for options, one of which nothing is known.
 text, size, needed: as of uts_get.
 Returns UTS_OK; UTS_EPROPERTY if properties contradict each other; UTS_ETOOSMALL, UTS_ENOTCONN,
 UTS_EHANDLE or UTS_EINVAL.
 */
int uts_explain(const void *handle, const uts_path *path, char *text, size_t size, size_t *needed);

/*
 Hands a message over, whole or not at all. Under properties without preserveMsgBoundaries the
 peer reads bytes.

 data, size: the message; it is copied. options: NULL = as the flow's properties say.
 timeout_ms: how long to wait while the flow is full; 0 = not at all, -1 = for good.
 Returns UTS_OK; UTS_AGAIN or UTS_ETIMEDOUT, and nothing was taken; UTS_ESTOPPED, UTS_EFINISHED,
 UTS_ECLOSED, UTS_EMESSAGE, UTS_EPROPERTY, UTS_EHANDLE, UTS_EBUSY or UTS_EINVAL.
 */
int uts_send(uts_flow *flow, const void *data, size_t size, const uts_message_options *options, int timeout_ms);

/*
 Hands bytes over, and waits while the flow is full.

 written: how many were taken, also in case of an error; NULL if that is of no interest.
 timeout_ms: how long to wait for all; 0 = take what there is room for.
 Returns UTS_OK if all were taken; UTS_AGAIN or UTS_ETIMEDOUT if less were; else as uts_send.
 */
int uts_write(uts_flow *flow, const void *data, size_t size, size_t *written, int timeout_ms);

/*
 Receives the next message.

 data, size: where it goes. got: its size, also of one that is larger than the room.
 timeout_ms: how long to wait; 0 = not at all, -1 = for good.
 Returns UTS_OK; UTS_AGAIN; UTS_END at the end; UTS_ETOOSMALL, and the next call gives it;
 UTS_ERESET, UTS_EMESSAGE, UTS_ECLOSED, UTS_ETIMEDOUT, UTS_EHANDLE, UTS_EBUSY or UTS_EINVAL.
 */
int uts_recv(uts_flow *flow, void *data, size_t size, size_t *got, int timeout_ms);

/*
 Receives bytes in order, up to "size" of them: what there is, and one at least.

 data, size: where they go. got: how many there are.
 timeout_ms: how long to wait; 0 = not at all, -1 = for good.
 Returns UTS_OK; UTS_AGAIN; UTS_END at the end; UTS_ERESET, UTS_EMESSAGE (bytes are missing,
 which the profile gives up), UTS_ECLOSED, UTS_ETIMEDOUT, UTS_EHANDLE, UTS_EBUSY or UTS_EINVAL.
 */
int uts_read(uts_flow *flow, void *data, size_t size, size_t *got, int timeout_ms);

/*
 Receives what comes next, a message or bytes, without copying it. It is in memory of the
 library's until uts_release, also if the flow is closed before.

 bytes_max: most bytes, where there is no message.
 timeout_ms: how long to wait; 0 = not at all, -1 = for good.
 Returns UTS_OK; UTS_AGAIN; UTS_END at the end; as uts_recv else.
 */
int uts_recv_buffer(uts_flow *flow, uts_buffer *buffer, size_t bytes_max, int timeout_ms);

/*
 Tells when a message was made and what is missing before it, where the sender asks for
 "uts.playoutDelay".

 timing: where it goes.
 Returns UTS_OK; UTS_EHANDLE if the buffer was ended; UTS_EINVAL.
 */
int uts_buffer_timing(const uts_buffer *buffer, uts_timing *timing);

/*
 Ends a buffer: its bytes are the library's again, and it is empty.

 Returns UTS_OK; UTS_EHANDLE if it was ended before; UTS_EINVAL.
 */
int uts_release(uts_buffer *buffer);

/*
 Receives the next expedited message, also while nobody receives anything else of the flow.

 data, size: where it goes; it has 16 bytes at most. got: its size.
 Returns UTS_OK; UTS_AGAIN; UTS_END when none can come any more; UTS_EINVAL with less room than
 16 bytes; UTS_ECLOSED, UTS_ETIMEDOUT, UTS_EHANDLE or UTS_EBUSY.
 */
int uts_recv_expedited(uts_flow *flow, void *data, size_t size, size_t *got, int timeout_ms);

/*
 Ends a flow behind what was written: the peer reads that, and then its end.

 Returns UTS_OK; UTS_EFINISHED if it has ended before; UTS_ESTOPPED, UTS_ECLOSED, UTS_EPROPERTY,
 UTS_EHANDLE or UTS_EBUSY.
 */
int uts_finish(uts_flow *flow);

/*
 Ends a flow, if that was not done, and waits until the peer has acknowledged everything.

 Returns UTS_OK; UTS_AGAIN; UTS_ETIMEDOUT; else as uts_finish.
 */
int uts_finished(uts_flow *flow, int timeout_ms);

/*
 Gives up at once what is sent in a flow. The peer's calls return UTS_ERESET.
 */
int uts_reset(uts_flow *flow, uint64_t code);

/*
 Tells the peer that no more of a flow is wanted. Its calls return UTS_ESTOPPED.
 */
int uts_stop(uts_flow *flow, uint64_t code);

/*
 Closes a handle of any kind. Calls of other threads that wait with it return UTS_EHANDLE.

 A context takes its handles with it: connections are closed with code 0, and their peers are
 told. A listener accepts no more. A connection is closed with code 0; to say why, call
 uts_shutdown before. A flow that was not finished is reset behind what was written. Of options,
 a copy was taken by whoever was given them.

 Returns UTS_EHANDLE for NULL, and for what is no handle or no longer one. Nothing else happens
 then.
 */
int uts_close(void *handle);

/*
 Keeps a value of the program's with a handle. It comes with each of its entries.
 */
int uts_set_user(void *handle, void *user);

/*
 Value that uts_set_user has kept with a handle; NULL if none was, or in case of an error.
 */
void *uts_user(const void *handle);

/*
 Accepts connections at an address.

 address: "host:port" or "[v6]:port"; "[::]:4433" takes IPv4 as well, port 0 = any (uts_get with
 "localAddress" says which). options: with "identity" at least.
 listener: where its handle goes; NULL in case of an error.
 Returns UTS_OK; UTS_EADDRESS, UTS_EPROPERTY, UTS_ESYSTEM, UTS_EHANDLE or UTS_EINVAL.
 */
int uts_listen(uts_context *context, const char *address, const uts_options *options, uts_listener **listener);

/*
 Accepts the next connection, whose handshake is done.

 timeout_ms: how long to wait; 0 = not at all, -1 = for good.
 connection: where its handle goes; NULL if there is none.
 Returns UTS_OK; UTS_AGAIN; UTS_END if none can come any more; UTS_ETIMEDOUT, UTS_EHANDLE,
 UTS_EBUSY or UTS_EINVAL.
 */
int uts_accept(uts_listener *listener, uts_connection **connection, int timeout_ms);

/*
 Makes options, with nothing set.

 options: where their handle goes; NULL in case of an error.
 Returns UTS_OK or UTS_EINVAL.
 */
int uts_options_new(uts_options **options);

/*
 Sets a property by name: uts_set(h, "msgLifetime", "100ms").

 handle: of options; of a connection, whose mechanisms are exchanged if they no longer fit; of a
 flow, before anything is written to it ("flowPriority" at any time).
 name: one of RFC 9622 or of its own (uts.…), as "uts properties" lists them, or, for options, a
 setting (docs/c.md).
 Returns UTS_OK; UTS_EPROPERTY, UTS_ECLOSED, UTS_ENOTCONN, UTS_EHANDLE or UTS_EINVAL. Nothing has
 changed in case of an error.
 */
int uts_set(void *handle, const char *name, const char *value);

/*
 Looks at a property, or at a fact of a connection, a listener or a flow.

 name: a property; or one of "localAddress", "remoteAddress", "fingerprint" (of a listener its
 own key, of a connection the peer's), "service", "profile" (mechanisms of what this end sends),
 "profileIn", "requirements" (all that differs from the defaults), "state", "flow" (its number).
 text, size: where the text goes, with a zero behind it. needed: its length without the zero;
 NULL if that is of no interest. With a size of 0 it is all that is told.
 Returns UTS_OK; UTS_ETOOSMALL, UTS_EPROPERTY, UTS_ENOTCONN, UTS_EHANDLE or UTS_EINVAL.
 */
int uts_get(const void *handle, const char *name, char *text_out, size_t size, size_t *needed);

/*
 Adds a host's key to a file of known hosts: what an interactive program does when uts_connect
 has failed with UTS_EUNTRUSTED and its user accepts the key.

 file: the file; NULL = the user's own. host: "host:port". fingerprint: "SHA256:…".
 Returns UTS_OK, UTS_EINVAL, UTS_EPROPERTY or UTS_ESYSTEM.
 */
int uts_known_hosts_add(const char *file, const char *host, const char *fingerprint);

/*
 Tells figures of a connection.

 stats: where they go. size: sizeof(uts_stats). A program that was compiled with an older header
 gets those that it knows, one with a newer header zeros for the others.
 Returns UTS_OK, UTS_ENOTCONN, UTS_EHANDLE or UTS_EINVAL.
 */
int uts_get_stats(uts_connection *connection, uts_stats *stats, size_t size);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* UTS_H */
