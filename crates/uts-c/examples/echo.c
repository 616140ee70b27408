/*
 * Echo: a server that many clients use at once, by the queue of its context, and a client whose calls
 * wait.
 *
 *   echo serve 127.0.0.1:4433           says its address and its key
 *   echo send ADDRESS FINGERPRINT TEXT
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uts.h>

#define FOREVER (-1)

static void check(int code, const char *what) {
    if (code < 0) {
        fprintf(stderr, "%s: %s (%s)\n", what, uts_error(), uts_code_name(code));
        exit(1);
    }
}

/* What has arrived and waits to go back. It hangs at its flow. */
struct echo {
    char data[4096];
    size_t size, sent;
    int is_end;
};

/* Takes a flow as far as it goes without waiting. The queue tells when it goes on. */
static void go_on(uts_flow *flow, struct echo *echo) {
    int code = UTS_OK;
    while (code == UTS_OK) {
        if (echo->sent < echo->size) {
            size_t written = 0;
            code = uts_write(flow, echo->data + echo->sent, echo->size - echo->sent, &written, 0);
            echo->sent += written;
        } else if (echo->is_end) {
            code = uts_finished(flow, 0);
            if (code == UTS_OK) {
                code = UTS_END;
            }
        } else {
            echo->size = echo->sent = 0;
            code = uts_read(flow, echo->data, sizeof echo->data, &echo->size, 0);
            if (code == UTS_END) {
                echo->is_end = 1;
                code = UTS_OK;
            }
        }
    }
    if (code != UTS_AGAIN) {
        if (code < 0) {
            fprintf(stderr, "a flow has failed: %s\n", uts_error());
        }
        free(echo);
        uts_close(flow);
    }
}

static void accept_flows(uts_connection *connection) {
    uts_flow *flow;
    int code;
    while ((code = uts_accept_flow(connection, &flow, 0)) == UTS_OK) {
        struct echo *echo = calloc(1, sizeof *echo);
        if (echo == NULL) {
            exit(1);
        }
        uts_set_user(flow, echo);
        go_on(flow, echo);
    }
    if (code != UTS_AGAIN) {
        uts_close(connection); /* It has ended. */
    }
}

static void accept_connections(uts_listener *listener) {
    uts_connection *connection;
    while (uts_accept(listener, &connection, 0) == UTS_OK) {
        accept_flows(connection);
    }
}

static void serve(uts_context *context, uts_options *options, const char *address) {
    uts_listener *listener;
    char at[128], key[128];
    check(uts_set(options, "identity", "ephemeral"), "identity");
    check(uts_listen(context, address, options, &listener), "listen");
    check(uts_get(listener, "localAddress", at, sizeof at, NULL), "address");
    check(uts_get(listener, "fingerprint", key, sizeof key, NULL), "key");
    printf("%s %s\n", at, key);
    fflush(stdout);
    accept_connections(listener);
    for (;;) {
        uts_entry entries[16];
        size_t count, i;
        check(uts_poll(context, entries, 16, &count, FOREVER), "poll");
        for (i = 0; i < count; i++) {
            switch (entries[i].operation) {
            case UTS_ON_ACCEPT:
                accept_connections(entries[i].handle);
                break;
            case UTS_ON_ACCEPT_FLOW:
                accept_flows(entries[i].handle);
                break;
            default:
                go_on(entries[i].handle, entries[i].user);
            }
        }
    }
}

static void send_text(uts_context *context, uts_options *options, char **words) {
    uts_connection *connection;
    uts_flow *flow;
    char answer[4096];
    size_t got;
    int code;
    check(uts_set(options, "pin", words[1]), "key");
    check(uts_connect(context, words[0], options, &connection, FOREVER), "connect");
    check(uts_open_flow(connection, NULL, &flow, FOREVER), "flow");
    check(uts_write(flow, words[2], strlen(words[2]), NULL, FOREVER), "write");
    check(uts_finish(flow), "finish");
    while ((code = uts_read(flow, answer, sizeof answer, &got, FOREVER)) == UTS_OK) {
        fwrite(answer, 1, got, stdout);
    }
    check(code, "read");
    printf("\n");
    check(uts_shutdown(connection, 0, "done"), "shutdown");
}

int main(int argc, char **argv) {
    uts_context *context;
    uts_options *options;
    check(uts_context_new(&context), "context");
    check(uts_options_new(&options), "options");
    if (argc == 3 && strcmp(argv[1], "serve") == 0) {
        serve(context, options, argv[2]);
    } else if (argc == 5 && strcmp(argv[1], "send") == 0) {
        send_text(context, options, argv + 2);
    } else {
        fprintf(stderr, "usage: echo serve ADDRESS | echo send ADDRESS FINGERPRINT TEXT\n");
        return 2;
    }
    uts_close(options);
    uts_close(context);
    return 0;
}
