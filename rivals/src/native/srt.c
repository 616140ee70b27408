/* SRT's statistics, read with the headers of the installed version: later versions have more of them. */
#include <srt.h>

struct rival_srt_status {
    double rtt_ms;
    int64_t sent_packets;
    int64_t repeated_packets;
    int64_t window_packets;
    int64_t in_flight_packets;
    int64_t packet_bytes; /* of the largest packet, with IP and UDP headers */
    int64_t accepted_bytes;
    int64_t waiting_bytes; /* taken from the application and not acknowledged */
};

int rival_srt_status(SRTSOCKET socket, struct rival_srt_status *out) {
    SRT_TRACEBSTATS stats;
    int result = srt_bistats(socket, &stats, 0, 1);
    if (result < 0) return result;
    out->rtt_ms = stats.msRTT;
    out->sent_packets = stats.pktSentTotal;
    out->repeated_packets = stats.pktRetransTotal;
    out->window_packets = stats.pktCongestionWindow < stats.pktFlowWindow ? stats.pktCongestionWindow : stats.pktFlowWindow;
    out->in_flight_packets = stats.pktFlightSize;
    out->packet_bytes = stats.byteMSS;
    /* Since 1.5.0; what was sent without what was sent again is the same, but for headers. */
#if SRT_VERSION_VALUE >= SRT_MAKE_VERSION_VALUE(1, 5, 0)
    out->accepted_bytes = (int64_t) stats.byteSentUniqueTotal;
#else
    out->accepted_bytes = (int64_t) (stats.byteSentTotal - stats.byteRetransTotal);
#endif
    out->waiting_bytes = stats.byteSndBuf;
    return 0;
}

/* The options that the adapter sets or reads, in the order of `OptionName` in srt.rs. */
const int rival_srt_option[] = {
    SRTO_SNDSYN,  SRTO_RCVSYN,     SRTO_FC,       SRTO_SNDBUF,   SRTO_RCVBUF,    SRTO_LINGER,    SRTO_MAXBW,
    SRTO_SNDDATA, SRTO_LATENCY,    SRTO_PASSPHRASE, SRTO_PBKEYLEN, SRTO_STREAMID, SRTO_TRANSTYPE, SRTO_REUSEADDR,
};
