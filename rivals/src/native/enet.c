/* What the adapter needs of ENet's structures, read with the headers of the installed version. */
#include <enet/enet.h>
#include <string.h>

struct rival_enet_event {
    int32_t kind; /* ENetEventType, or less than 0 if servicing failed */
    uint32_t data;
    ENetPeer *peer;
    ENetPacket *packet;
    const uint8_t *bytes;
    size_t length;
    uint8_t channel;
};

struct rival_enet_status {
    uint32_t window_bytes;
    uint32_t in_flight_bytes;
    uint32_t rtt_ms;
    uint32_t sent_packets; /* of the host: datagrams */
    uint32_t lost_packets; /* of the peer, within the present interval */
};

void rival_enet_version(uint32_t *major, uint32_t *minor, uint32_t *patch) {
    ENetVersion version = enet_linked_version();
    *major = ENET_VERSION_GET_MAJOR(version);
    *minor = ENET_VERSION_GET_MINOR(version);
    *patch = ENET_VERSION_GET_PATCH(version);
}

/* The address is in network byte order, the port in the host's. */
ENetHost *rival_enet_listen(uint32_t address, uint16_t port, size_t peers, size_t channels) {
    ENetAddress at;
    at.host = address;
    at.port = port;
    return enet_host_create(&at, peers, channels, 0, 0);
}

ENetHost *rival_enet_host(size_t channels) { return enet_host_create(NULL, 1, channels, 0, 0); }

ENetPeer *rival_enet_connect(ENetHost *host, uint32_t address, uint16_t port, size_t channels) {
    ENetAddress to;
    to.host = address;
    to.port = port;
    return enet_host_connect(host, &to, channels, 0);
}

int rival_enet_socket(const ENetHost *host) { return host->socket; }

/* 0 if the socket has no address. */
uint16_t rival_enet_port(const ENetHost *host) {
    ENetAddress at;
    return enet_socket_get_address(host->socket, &at) < 0 ? 0 : at.port;
}

int rival_enet_service(ENetHost *host, struct rival_enet_event *out) {
    ENetEvent event;
    int result = enet_host_service(host, &event, 0);
    memset(out, 0, sizeof *out);
    if (result < 0) {
        out->kind = -1;
        return result;
    }
    out->kind = (int32_t) event.type;
    out->data = event.data;
    out->peer = event.peer;
    out->channel = event.channelID;
    if (event.type == ENET_EVENT_TYPE_RECEIVE) {
        out->packet = event.packet;
        out->bytes = event.packet->data;
        out->length = event.packet->dataLength;
    }
    return result;
}

static void on_freed(ENetPacket *packet) {
    uint64_t *freed = packet->userData;
    freed[0] += packet->dataLength;
    freed[1] += 1;
}

/* Hands a packet over, and adds its length and 1 to the two numbers of `freed` once ENet has no use for it any more: a
   reliable one when all of it has been acknowledged, an unreliable one when it has left. They must live as long as the host. */
int rival_enet_send(ENetPeer *peer, uint8_t channel, const uint8_t *bytes, size_t length, uint32_t flags, uint64_t *freed) {
    ENetPacket *packet = enet_packet_create(bytes, length, flags);
    if (packet == NULL) return -1;
    int result = enet_peer_send(peer, channel, packet);
    if (result < 0) {
        enet_packet_destroy(packet);
        return result;
    }
    packet->userData = freed;
    packet->freeCallback = on_freed;
    return 0;
}

void rival_enet_status(const ENetPeer *peer, struct rival_enet_status *out) {
    uint32_t window = peer->packetThrottle * peer->windowSize / ENET_PEER_PACKET_THROTTLE_SCALE;
    out->window_bytes = window > peer->mtu ? window : peer->mtu;
    out->in_flight_bytes = peer->reliableDataInTransit;
    out->rtt_ms = peer->roundTripTime;
    out->sent_packets = peer->host->totalSentPackets;
    out->lost_packets = peer->packetsLost;
}
