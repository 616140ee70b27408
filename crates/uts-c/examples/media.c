/*
 * Sends frames that are worth nothing after a deadline, 50 in a second, in the manner of ENet: one loop
 * that serves whatever has come, and then sends what is due.
 *
 *   media receive ADDRESS                          says its address and its key, and what came in time
 *   media send ADDRESS FINGERPRINT FRAMES DEADLINE   a deadline as 100ms
 */
#define _POSIX_C_SOURCE 200809L
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uts.h>

#define FOREVER (-1)
#define INTERVAL_MS 20
#define FRAME_BYTES 800

static void check(int code, const char *what) {
    if (code < 0) {
        fprintf(stderr, "%s: %s (%s)\n", what, uts_error(), uts_code_name(code));
        exit(1);
    }
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void receive(uts_context *context, uts_options *options, const char *address) {
    uts_listener *listener;
    uts_connection *connection;
    uts_flow *flow;
    uts_buffer frame;
    char text[256];
    unsigned long frames = 0, last = 0, late = 0;
    int code;
    check(uts_set(options, "identity", "ephemeral"), "identity");
    check(uts_listen(context, address, options, &listener), "listen");
    check(uts_get(listener, "localAddress", text, sizeof text, NULL), "address");
    printf("%s ", text);
    check(uts_get(listener, "fingerprint", text, sizeof text, NULL), "key");
    printf("%s\n", text);
    fflush(stdout);
    check(uts_accept(listener, &connection, FOREVER), "accept");
    check(uts_accept_flow(connection, &flow, FOREVER), "flow");
    /* Frames are looked at where they are, and not copied. */
    while ((code = uts_recv_buffer(flow, &frame, FRAME_BYTES, FOREVER)) == UTS_OK) {
        unsigned long number = 0;
        if (frame.size >= sizeof number) {
            memcpy(&number, frame.data, sizeof number);
        }
        late += number < last;
        last = number > last ? number : last;
        frames++;
        uts_release(&frame);
    }
    check(code, "receive");
    printf("%lu frames, %lu out of order, the last: %lu\n", frames, late, last);
}

/* Serves the queue until "until": events are told, a flow that was full goes on. */
static void serve(uts_context *context, uts_connection *connection, long until) {
    for (;;) {
        struct pollfd fd = {0};
        uts_event event;
        uts_entry entry;
        size_t count;
        long left = until - now_ms();
        while (uts_next_event(connection, &event, 0) == UTS_OK) {
            if (event.kind == UTS_EVENT_COMPLETED || event.kind == UTS_EVENT_CLOSED) {
                fprintf(stderr, "%s\n", event.text);
            }
        }
        if (left <= 0) {
            return;
        }
        /* An event loop of the program's own would wait like this, beside its other descriptors. */
        fd.fd = uts_context_fd(context);
        fd.events = POLLIN;
        if (poll(&fd, 1, (int)left) > 0) {
            check(uts_poll(context, &entry, 1, &count, 0), "poll");
        }
    }
}

static void send_frames(uts_context *context, uts_options *options, char **words) {
    static char frame[FRAME_BYTES];
    uts_connection *connection;
    uts_flow *flow;
    uts_message_options urgent = {0};
    uts_stats stats;
    unsigned long number, frames = strtoul(words[2], NULL, 10), dropped = 0;
    long due;
    check(uts_set(options, "pin", words[1]), "key");
    check(uts_set(options, "uts.profile", "media"), "profile");
    check(uts_set(options, "msgLifetime", words[3]), "deadline");
    check(uts_connect(context, words[0], options, &connection, FOREVER), "connect");
    check(uts_open_flow(connection, NULL, &flow, FOREVER), "flow");
    /* Every tenth frame is a key frame, which may take longer. */
    urgent.flags = UTS_HAS_LIFETIME;
    urgent.lifetime_us = 1000000;
    due = now_ms();
    for (number = 1; number <= frames; number++) {
        int code;
        memcpy(frame, &number, sizeof number);
        code = uts_send(flow, frame, sizeof frame, number % 10 == 1 ? &urgent : NULL, 0);
        check(code, "send");
        dropped += code == UTS_AGAIN; /* The path is full: this frame would come too late. */
        due += INTERVAL_MS;
        serve(context, connection, due);
    }
    check(uts_finished(flow, FOREVER), "finish");
    check(uts_get_stats(connection, &stats, sizeof stats), "stats");
    printf("%lu frames, %lu dropped here, %lu given up, %lu bit/s, %.3f ms there and back\n", frames, dropped,
           (unsigned long)stats.messages_expired, (unsigned long)stats.rate_bps, (double)stats.rtt_ns / 1e6);
    check(uts_shutdown(connection, 0, "done"), "shutdown");
}

int main(int argc, char **argv) {
    uts_context *context;
    uts_options *options;
    check(uts_context_new(&context), "context");
    check(uts_options_new(&options), "options");
    if (argc == 3 && strcmp(argv[1], "receive") == 0) {
        receive(context, options, argv[2]);
    } else if (argc == 6 && strcmp(argv[1], "send") == 0) {
        send_frames(context, options, argv + 2);
    } else {
        fprintf(stderr, "usage: media receive ADDRESS | media send ADDRESS FINGERPRINT FRAMES DEADLINE\n");
        return 2;
    }
    uts_close(options);
    uts_close(context);
    return 0;
}
