/*
 * Sends a file, and says what the path was like.
 *
 *   send_file receive ADDRESS FILE             receives one, and says its address and its key before
 *   send_file send ADDRESS FINGERPRINT FILE
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uts.h>

#define FOREVER (-1)
#define BLOCK_BYTES 65536

static void check(int code, const char *what) {
    if (code < 0) {
        fprintf(stderr, "%s: %s (%s)\n", what, uts_error(), uts_code_name(code));
        exit(1);
    }
}

static FILE *opened(const char *path, const char *mode) {
    FILE *file = fopen(path, mode);
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    return file;
}

static void receive(uts_context *context, uts_options *options, char **words) {
    static char block[BLOCK_BYTES];
    uts_listener *listener;
    uts_connection *connection;
    uts_flow *flow;
    char text[256];
    FILE *file = opened(words[1], "wb");
    size_t got, total = 0;
    int code;
    check(uts_set(options, "identity", "ephemeral"), "identity");
    check(uts_listen(context, words[0], options, &listener), "listen");
    check(uts_get(listener, "localAddress", text, sizeof text, NULL), "address");
    printf("%s ", text);
    check(uts_get(listener, "fingerprint", text, sizeof text, NULL), "key");
    printf("%s\n", text);
    fflush(stdout);
    check(uts_accept(listener, &connection, FOREVER), "accept");
    check(uts_accept_flow(connection, &flow, FOREVER), "flow");
    while ((code = uts_read(flow, block, sizeof block, &got, FOREVER)) == UTS_OK) {
        if (fwrite(block, 1, got, file) != got) {
            perror(words[1]);
            exit(1);
        }
        total += got;
    }
    check(code, "read");
    if (fclose(file) != 0) {
        perror(words[1]);
        exit(1);
    }
    /* The end of this way tells the sender that the file is on the disk. */
    check(uts_finished(flow, FOREVER), "finish");
    printf("received %lu bytes\n", (unsigned long)total);
}

static void send_file(uts_context *context, uts_options *options, char **words) {
    static char block[BLOCK_BYTES];
    uts_connection *connection;
    uts_flow *flow;
    uts_stats stats;
    FILE *file = opened(words[2], "rb");
    size_t size, got;
    int code;
    check(uts_set(options, "pin", words[1]), "key");
    check(uts_set(options, "uts.profile", "bulk"), "profile");
    check(uts_connect(context, words[0], options, &connection, FOREVER), "connect");
    check(uts_open_flow(connection, NULL, &flow, FOREVER), "flow");
    while ((size = fread(block, 1, sizeof block, file)) > 0) {
        check(uts_write(flow, block, size, NULL, FOREVER), "write");
    }
    if (ferror(file)) {
        perror(words[2]);
        exit(1); /* The flow is reset: the peer does not take half of the file for all of it. */
    }
    fclose(file);
    check(uts_finished(flow, FOREVER), "finish");
    code = uts_read(flow, block, 1, &got, FOREVER);
    check(code == UTS_OK ? UTS_EMESSAGE : code, "the receiver's word");
    check(uts_get_stats(connection, &stats, sizeof stats), "stats");
    printf("sent %lu bytes in %lu packets, %lu lost, %.3f ms there and back\n",
           (unsigned long)stats.data_bytes_sent, (unsigned long)stats.packets_sent,
           (unsigned long)stats.packets_lost, (double)stats.rtt_ns / 1e6);
    check(uts_shutdown(connection, 0, "done"), "shutdown");
}

int main(int argc, char **argv) {
    uts_context *context;
    uts_options *options;
    check(uts_context_new(&context), "context");
    check(uts_options_new(&options), "options");
    if (argc == 4 && strcmp(argv[1], "receive") == 0) {
        receive(context, options, argv + 2);
    } else if (argc == 5 && strcmp(argv[1], "send") == 0) {
        send_file(context, options, argv + 2);
    } else {
        fprintf(stderr, "usage: send_file receive ADDRESS FILE | send_file send ADDRESS FINGERPRINT FILE\n");
        return 2;
    }
    uts_close(options);
    uts_close(context);
    return 0;
}
