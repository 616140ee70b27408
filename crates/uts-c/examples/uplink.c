/*
 * A client of `uts serve`: sends a file to a service of its (--pipe NAME=PORT), or frames that are worth
 * nothing after a deadline, 50 in a second (--media). spec/services.md says what is asked.
 *
 *   uplink file ADDRESS FINGERPRINT NAME FILE
 *   uplink media ADDRESS FINGERPRINT NAME FRAMES DEADLINE   a deadline as 100ms
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uts.h>

#define FOREVER (-1)
#define BLOCK_BYTES 65536
#define FRAME_BYTES 800
#define INTERVAL_NS 20000000

static void check(int code, const char *what) {
    if (code < 0) {
        fprintf(stderr, "%s: %s (%s)\n", what, uts_error(), uts_code_name(code));
        exit(1);
    }
}

static void read_exactly(uts_flow *flow, unsigned char *to, size_t size) {
    size_t got;
    while (size > 0) {
        int code = uts_read(flow, to, size, &got, FOREVER);
        check(code == UTS_END ? UTS_EMESSAGE : code, "the answer");
        to += got;
        size -= got;
    }
}

/* Asks for a stream by its name, behind some bytes, and waits for the answer. (V-2) */
static void ask(uts_flow *flow, const char *first, size_t count, const char *name, const char *last, size_t more) {
    unsigned char request[128], answer[2], text[256];
    size_t length = strlen(name);
    if (length == 0 || length > 64) {
        fprintf(stderr, "a name has 1 to 64 bytes\n");
        exit(2);
    }
    memcpy(request, first, count);
    request[count] = (unsigned char)length;
    memcpy(request + count + 1, name, length);
    memcpy(request + count + 1 + length, last, more);
    check(uts_write(flow, request, count + 1 + length + more, NULL, FOREVER), "request");
    read_exactly(flow, answer, 2);
    read_exactly(flow, text, answer[1]);
    if (answer[0] != 0) {
        fprintf(stderr, "refused: %.*s\n", (int)answer[1], (const char *)text);
        exit(1);
    }
}

static void tell(uts_connection *connection) {
    uts_stats stats;
    check(uts_get_stats(connection, &stats, sizeof stats), "stats");
    printf("%lu packets, %lu lost, %lu messages given up, %.3f ms there and back\n",
           (unsigned long)stats.packets_sent, (unsigned long)stats.packets_lost,
           (unsigned long)stats.messages_expired, (double)stats.rtt_ns / 1e6);
    check(uts_shutdown(connection, 0, "done"), "shutdown");
}

/* A file by a stream of the service "pipe". (V-3) */
static void send_file(uts_context *context, uts_options *options, char **words) {
    static char block[BLOCK_BYTES];
    uts_connection *connection;
    uts_flow *flow;
    FILE *file = fopen(words[3], "rb");
    size_t size, got;
    int code;
    if (file == NULL) {
        perror(words[3]);
        exit(1);
    }
    check(uts_set(options, "service", "pipe"), "service");
    check(uts_set(options, "uts.profile", "bulk"), "profile");
    check(uts_connect(context, words[0], options, &connection, FOREVER), "connect");
    check(uts_open_flow(connection, NULL, &flow, FOREVER), "flow");
    ask(flow, "\1", 1, words[2], "", 0);
    while ((size = fread(block, 1, sizeof block, file)) > 0) {
        check(uts_write(flow, block, size, NULL, FOREVER), "write");
    }
    if (ferror(file)) {
        perror(words[3]);
        exit(1);
    }
    fclose(file);
    check(uts_finished(flow, FOREVER), "finish");
    /* What the service says goes to standard output; its end tells that it has all. */
    while ((code = uts_read(flow, block, sizeof block, &got, FOREVER)) == UTS_OK) {
        fwrite(block, 1, got, stdout);
    }
    check(code, "the service's word");
    tell(connection);
}

/* Frames with a deadline by the service "media": each a message with its number before it. (V-9, V-10) */
static void send_media(uts_context *context, uts_options *options, char **words) {
    static unsigned char frame[4 + FRAME_BYTES];
    uts_options *bytes;
    uts_connection *connection;
    uts_flow *requests, *flow;
    unsigned long number, frames = strtoul(words[3], NULL, 10), dropped = 0;
    struct timespec due;
    check(uts_set(options, "service", "media"), "service");
    check(uts_set(options, "uts.profile", "media"), "profile");
    check(uts_set(options, "msgLifetime", words[4]), "deadline");
    check(uts_connect(context, words[0], options, &connection, FOREVER), "connect");
    /* Requests are bytes, whatever the rest of the connection is. */
    check(uts_options_new(&bytes), "options");
    check(uts_set(bytes, "uts.profile", "bulk"), "profile");
    check(uts_open_flow(connection, bytes, &requests, FOREVER), "flow");
    ask(requests, "\1\0", 2, words[2], "\0", 1);
    check(uts_open_flow(connection, NULL, &flow, FOREVER), "flow");
    clock_gettime(CLOCK_MONOTONIC, &due);
    for (number = 0; number < frames; number++) {
        int code, at;
        for (at = 0; at < 4; at++) {
            frame[at] = (unsigned char)(number >> (24 - 8 * at));
        }
        memset(frame + 4, (int)(number & 0xff), FRAME_BYTES);
        code = uts_send(flow, frame, sizeof frame, NULL, 0);
        check(code, "send");
        dropped += code == UTS_AGAIN; /* The path is full: this frame would come too late. */
        due.tv_nsec += INTERVAL_NS;
        due.tv_sec += due.tv_nsec / 1000000000;
        due.tv_nsec %= 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
    }
    check(uts_finished(flow, FOREVER), "finish");
    printf("%lu frames, %lu dropped here\n", frames, dropped);
    check(uts_finish(requests), "finish");
    uts_close(bytes);
    tell(connection);
}

int main(int argc, char **argv) {
    uts_context *context;
    uts_options *options;
    int is_file = argc == 6 && strcmp(argv[1], "file") == 0;
    int is_media = argc == 7 && strcmp(argv[1], "media") == 0;
    if (!is_file && !is_media) {
        fprintf(stderr, "usage: uplink file ADDRESS FINGERPRINT NAME FILE\n"
                        "       uplink media ADDRESS FINGERPRINT NAME FRAMES DEADLINE\n");
        return 2;
    }
    check(uts_context_new(&context), "context");
    check(uts_options_new(&options), "options");
    check(uts_set(options, "pin", argv[3]), "key");
    /* Where SSLKEYLOGFILE names a file, a capture can be read with it. */
    check(uts_set(options, "keyLog", "on"), "key log");
    /* The address, the fingerprint, and what is behind them. */
    if (is_file) {
        send_file(context, options, argv + 2);
    } else {
        send_media(context, options, argv + 2);
    }
    uts_close(options);
    uts_close(context);
    return 0;
}
