/* Raw-protocol load from one epoll thread, on Kafka's wire and on gnomon's own: cheap enough not to slow the broker beside it.
 *
 *   raw load  PORT CONNECTIONS IN_FLIGHT WARMUP_MS MEASURE_MS FRAME_FILE [HELLO_FILE|- FIELD...]
 *       sends one pre-built frame over and over, IN_FLIGHT requests a connection: Produce v7, or after a hello a `write`
 *       of gnomon's native protocol. Before each request its FIELDs are set:
 *           BYTES:OFFSET:BASE:STEP:COUNT   BASE + STEP * the connection's number + a count of the connection, in 4 or 8
 *                                          bytes, or 19 decimal digits; COUNT is `none`, `requests`, or `position`
 *           BYTES:OFFSET:BASE:STEP:random  BASE + a random number below STEP
 *           crc:OFFSET:FROM                CRC-32C of everything from FROM on
 *   raw race  PORT CONNECTIONS IN_FLIGHT WARMUP_MS MEASURE_MS FRAME_FILE HELLO_FILE FIELD...
 *       the same with native conditional writes that may lose: `position` goes on behind the record that a refusal names
 *   raw swap  PORT CONNECTIONS IN_FLIGHT WARMUP_MS MEASURE_MS FRAME_FILE HELLO_FILE FIELD...
 *       the same with transactions on a table that may lose, of a put, and else a get of the same key: `position` is the
 *       key's revision + 1
 *   raw fan   PORT TOPIC READERS RATE WARMUP COUNT FRAME_FILE
 *       sends the frame (one record) WARMUP + COUNT times at RATE a second; READERS long-poll with Fetch v4 from the
 *       end; all records must arrive, the latencies are those of the last COUNT
 *   raw start PORT TOPIC PARTITIONS TIMEOUT_MS FRAME_FILE|- LEADER
 *       waits until Metadata v4 names LEADER (-1: any broker) for PARTITIONS partitions, then until the frame is
 *       acknowledged (- : leaders only)
 *
 * One JSON object goes to standard output. Every response's error code is checked; the exit status is 0 only if
 * there was none, and every request was answered. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "measure.h"

enum { EVENTS_MAX = 512, RECEIVE_BYTES = 1 << 16, FETCH_BYTES = 1 << 20, FETCH_WAIT_MS = 500, DRAIN_SECONDS = 10 };

/* ---- bytes ---------------------------------------------------------------------------------------------------- */

static uint16_t get16(const char *at) { uint16_t value; memcpy(&value, at, 2); return ntohs(value); }
static uint32_t get32(const char *at) { uint32_t value; memcpy(&value, at, 4); return ntohl(value); }
static uint64_t get64(const char *at) { uint64_t value; memcpy(&value, at, 8); return be64toh(value); }
static char *put16(char *at, uint16_t value) { value = htons(value); memcpy(at, &value, 2); return at + 2; }
static char *put32(char *at, uint32_t value) { value = htonl(value); memcpy(at, &value, 4); return at + 4; }
static char *put64(char *at, uint64_t value) { value = htobe64(value); memcpy(at, &value, 8); return at + 8; }

static char *put_text(char *at, const char *text) {
    size_t length = strlen(text);
    at = put16(at, (uint16_t)length);
    memcpy(at, text, length);
    return at + length;
}

/* Steps over a string, nullable or not. */
static const char *skip_text(const char *at) {
    int16_t length = (int16_t)get16(at);
    return at + 2 + (length > 0 ? length : 0);
}

static char *put_request_header(char *at, uint16_t key, uint16_t version) {
    at = put16(put16(at, key), version);
    return put_text(put32(at, 1), "bench");
}

/* ---- frames --------------------------------------------------------------------------------------------------- */

struct frame {
    char *bytes;
    size_t length;
};

static struct frame frame_read(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) die("%s: %s", path, strerror(errno));
    fseek(file, 0, SEEK_END);
    struct frame frame = {.length = (size_t)ftell(file)};
    rewind(file);
    frame.bytes = allocate(frame.length);
    if (fread(frame.bytes, 1, frame.length, file) != frame.length) die("%s: short read", path);
    fclose(file);
    return frame;
}

/* Produce v7 response to one partition: its error code, and its base offset. */
static int produce_error(const char *response, uint64_t *base_offset) {
    const char *at = skip_text(response + 12) + 8; /* length, correlation id, topics; name; partitions, index */
    if (base_offset) *base_offset = get64(at + 2);
    return (int16_t)get16(at);
}

static struct frame fetch_frame(const char *topic, size_t *offset_at) {
    struct frame frame = {.bytes = allocate(256 + strlen(topic))};
    char *at = put_request_header(frame.bytes + 4, 1, 4);
    at = put32(put32(put32(at, UINT32_MAX), FETCH_WAIT_MS), 1); /* replica id, max wait, min bytes */
    at = put32(at, FETCH_BYTES);
    *at++ = 0; /* isolation level: read uncommitted */
    at = put32(put_text(put32(at, 1), topic), 1);
    at = put32(at, 0);
    *offset_at = (size_t)(at - frame.bytes);
    at = put32(put64(at, 0), FETCH_BYTES);
    frame.length = (size_t)(at - frame.bytes);
    put32(frame.bytes, (uint32_t)frame.length - 4);
    return frame;
}

static struct frame metadata_frame(const char *topic) {
    struct frame frame = {.bytes = allocate(128 + strlen(topic))};
    char *at = put_text(put32(put_request_header(frame.bytes + 4, 3, 4), 1), topic);
    *at++ = 1; /* create the topic if it is missing */
    frame.length = (size_t)(at - frame.bytes);
    put32(frame.bytes, (uint32_t)frame.length - 4);
    return frame;
}

/* Partitions of the only topic of a Metadata v4 response that have no error, and `leader` (-1: any) for leader. */
static long metadata_leaders(const char *response, int32_t leader) {
    const char *at = response + 12; /* length, correlation id, throttle time */
    uint32_t brokers = get32(at);
    at += 4;
    while (brokers--) at = skip_text(skip_text(at + 4) + 4);
    at = skip_text(at) + 4 + 4; /* cluster id; controller id, topic count */
    bool topic_failed = get16(at) != 0;
    at = skip_text(at + 2) + 1;
    uint32_t partitions = get32(at);
    at += 4;
    long leaders = 0;
    while (partitions--) {
        int32_t named = (int32_t)get32(at + 6);
        leaders += get16(at) == 0 && named >= 0 && (leader < 0 || named == leader);
        at += 10;
        at += 4 + 4 * get32(at);
        at += 4 + 4 * get32(at);
    }
    return topic_failed ? 0 : leaders;
}

/* ---- connections ---------------------------------------------------------------------------------------------- */

struct connection {
    int fd;
    char *received; /* bytes of responses that are not complete yet */
    size_t received_length, received_capacity;
    /* load only: requests in flight, when each was sent (a ring), and what of them the socket has not taken */
    int in_flight, oldest, newest;
    double *sent_at;
    size_t unsent, cursor;
    bool wants_write;
    char *burst; /* the frame, once for each request that may be in flight: several requests go out in one call */
    uint64_t requests;
    uint64_t position; /* load: what the next write expects; fan: the next offset this reader expects */
    double won_at; /* race only: when a write was last accepted */
};

static int try_dial(int port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0) die("socket: %s", strerror(errno));
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) {
        close(fd);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void connection_open(struct connection *connection, int port) {
    connection->fd = try_dial(port);
    if (connection->fd < 0) die("connect to port %d: %s", port, strerror(errno));
    fcntl(connection->fd, F_SETFL, O_NONBLOCK);
    connection->received_capacity = RECEIVE_BYTES;
    connection->received = allocate(RECEIVE_BYTES);
}

static void watch(int epoll, int fd, uint32_t index, uint32_t events, int operation) {
    struct epoll_event event = {.events = events, .data.u32 = index};
    if (epoll_ctl(epoll, operation, fd, &event)) die("epoll_ctl: %s", strerror(errno));
}

static void send_whole(int fd, const char *bytes, size_t length) {
    while (length) {
        ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 100);
        } else if (sent < 0) {
            die("send: %s", strerror(errno));
        } else {
            bytes += sent;
            length -= (size_t)sent;
        }
    }
}

/* Takes what the socket has; grows the buffer to the response that is under way. */
static void connection_receive(struct connection *connection) {
    if (connection->received_length >= 4) {
        size_t wanted = get32(connection->received) + 4;
        if (wanted > connection->received_capacity) {
            connection->received = realloc(connection->received, wanted);
            if (!connection->received) die("out of memory (response of %zu bytes)", wanted);
            connection->received_capacity = wanted;
        }
    }
    ssize_t got = recv(connection->fd, connection->received + connection->received_length,
                       connection->received_capacity - connection->received_length, 0);
    if (got == 0) die("the broker closed a connection");
    if (got < 0 && errno != EAGAIN && errno != EINTR) die("recv: %s", strerror(errno));
    if (got > 0) connection->received_length += (size_t)got;
}

/* The complete response at `start` of what was received, or NULL. */
static const char *response_at(const struct connection *connection, size_t start) {
    if (connection->received_length - start < 4) return NULL;
    size_t length = (size_t)get32(connection->received + start) + 4;
    return connection->received_length - start < length ? NULL : connection->received + start;
}

static void connection_consume(struct connection *connection, size_t length) {
    memmove(connection->received, connection->received + length, connection->received_length - length);
    connection->received_length -= length;
}

/* ---- load ----------------------------------------------------------------------------------------------------- */

/* A field that differs from request to request. */
struct field {
    enum { NUMBER, DIGITS, CHECKSUM } kind;
    size_t offset, bytes; /* of a checksum: where the covered bytes begin */
    long base, step;
    enum { NONE, REQUESTS, POSITION, RANDOM } count;
};

enum mode { LOAD, RACE, SWAP };

struct load {
    enum mode mode;
    int epoll, in_flight_max, fields_count;
    bool is_native;
    struct frame frame;
    struct field *fields;
    double measure_from, deadline, last_answer, longest_wait, answer_bytes;
    long answered, total, refused, errors, in_flight; /* answered: after the warm-up */
    struct samples latency;
};

static uint32_t crc32c(const char *bytes, size_t length) {
    static uint32_t table[256];
    if (!table[1])
        for (uint32_t byte = 0; byte < 256; byte++) {
            table[byte] = byte;
            for (int bit = 0; bit < 8; bit++) table[byte] = table[byte] >> 1 ^ (table[byte] & 1 ? 0x82F63B78 : 0);
        }
    uint32_t crc = UINT32_MAX;
    while (length--) crc = crc >> 8 ^ table[(crc ^ (uint8_t)*bytes++) & 0xFF];
    return ~crc;
}

static struct field field_read(const char *text) {
    struct field field = {0};
    char count[16] = "none";
    if (sscanf(text, "crc:%zu:%zu", &field.offset, &field.bytes) == 2) {
        field.kind = CHECKSUM;
    } else if (sscanf(text, "%zu:%zu:%ld:%ld:%15s", &field.bytes, &field.offset, &field.base, &field.step, count) == 5) {
        field.kind = field.bytes == 19 ? DIGITS : NUMBER;
        field.count = !strcmp(count, "requests")   ? REQUESTS
                      : !strcmp(count, "position") ? POSITION
                      : !strcmp(count, "random")   ? RANDOM
                                                   : NONE;
    } else {
        die("%s: no field", text);
    }
    return field;
}

/* Xorshift, from the time on: a second run does not ask for the keys that the first one has brought into memory. */
static uint64_t random_below(uint64_t end) {
    static uint64_t state;
    if (!state) state = 0x9E3779B97F4A7C15 ^ (uint64_t)(clock_seconds() * 1e9);
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % end;
}

static void field_set(struct field field, char *frame, size_t length, const struct connection *connection, uint32_t index) {
    uint64_t count = field.count == REQUESTS ? connection->requests : field.count == POSITION ? connection->position : 0;
    uint64_t varied = field.count == RANDOM ? random_below((uint64_t)field.step) : (uint64_t)(field.step * (long)index) + count;
    uint64_t value = (uint64_t)field.base + varied;
    char digits[24], *at = frame + field.offset;
    if (field.kind == CHECKSUM) {
        put32(at, crc32c(frame + field.bytes, length - field.bytes));
    } else if (field.kind == DIGITS) {
        snprintf(digits, sizeof digits, "%019lu", value);
        memcpy(at, digits, 19);
    } else if (field.bytes == 8) {
        put64(at, value);
    } else {
        put32(at, (uint32_t)value);
    }
}

static void load_queue(struct load *load, struct connection *connection, uint32_t index, double now) {
    char *frame = connection->burst + (size_t)connection->newest * load->frame.length;
    for (int field = 0; field < load->fields_count; field++)
        field_set(load->fields[field], frame, load->frame.length, connection, index);
    connection->requests++;
    connection->position++;
    connection->sent_at[connection->newest] = now;
    connection->newest = (connection->newest + 1) % load->in_flight_max;
    connection->in_flight++;
    load->in_flight++;
    connection->unsent += load->frame.length;
}

static void load_send(struct load *load, struct connection *connection, uint32_t index) {
    double now = clock_seconds();
    size_t burst_length = load->frame.length * (size_t)load->in_flight_max;
    while (now < load->deadline && connection->in_flight < load->in_flight_max) load_queue(load, connection, index, now);
    while (connection->unsent) {
        size_t length = burst_length - connection->cursor;
        if (length > connection->unsent) length = connection->unsent;
        ssize_t sent = send(connection->fd, connection->burst + connection->cursor, length, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (sent < 0) die("send: %s", strerror(errno));
        connection->cursor = (connection->cursor + (size_t)sent) % burst_length;
        connection->unsent -= (size_t)sent;
    }
    bool wants_write = connection->unsent != 0;
    if (wants_write != connection->wants_write) {
        watch(load->epoll, connection->fd, index, EPOLLIN | (wants_write ? EPOLLOUT : 0), EPOLL_CTL_MOD);
        connection->wants_write = wants_write;
    }
}

/* The number of msgpack at `at`, of those that are not negative. */
static uint64_t packed_number(const char *at) {
    switch ((uint8_t)*at) {
        case 0xCC: return (uint8_t)at[1];
        case 0xCD: return get16(at + 1);
        case 0xCE: return get32(at + 1);
        case 0xCF: return get64(at + 1);
        default: return (uint8_t)*at;
    }
}

/* Whether the transaction of a swap was done; takes the key's revision from its put's answer, or from the entry that its
 * get has read: a list of one number, or of an entry of up to 255 bytes that begins with it. */
static bool swap_succeeded(struct connection *connection, const char *response) {
    const char *attachment = response + 8 + get32(response + 4);
    bool succeeded = (uint8_t)attachment[-1] == 0xC3; /* the head ends with the answer, true or false */
    if (succeeded) {
        connection->position = packed_number(attachment + 1) + 1;
    } else if ((uint8_t)attachment[1] == 0xC4) {
        connection->position = get64(attachment + 3) + 1;
    } else {
        connection->position = 0; /* the key is absent */
    }
    return succeeded;
}

/* Whether a frame answers a request, and how: the kind of the frame stands behind the head of its list. */
static enum { NO_ANSWER, ACCEPTED, REFUSED, FAILED } load_verdict(
    struct load *load, struct connection *connection, const char *response) {
    if (!load->is_native) {
        int error = produce_error(response, NULL);
        if (error && !load->errors) fprintf(stderr, "produce was answered with error code %d\n", error);
        return error ? FAILED : ACCEPTED;
    }
    size_t length = (size_t)get32(response) + 4;
    if (response[9] == 4) return load->mode != SWAP || swap_succeeded(connection, response) ? ACCEPTED : REFUSED; /* RESULT */
    if (response[9] != 5) return NO_ANSWER; /* not an ERROR: a ping */
    const char *before = "but with sequence id ", *named = memmem(response, length, before, strlen(before));
    if (load->mode == RACE && named) {
        connection->position = (uint64_t)strtoll(named + strlen(before), NULL, 10) + 1;
        return REFUSED;
    }
    if (!load->errors) fprintf(stderr, "write was answered with an error: %.*s\n", (int)(length - 10), response + 10);
    return FAILED;
}

static void load_answers(struct load *load, struct connection *connection) {
    connection_receive(connection);
    double now = clock_seconds();
    size_t start = 0;
    for (const char *response; (response = response_at(connection, start)); start += (size_t)get32(response) + 4) {
        int verdict = load_verdict(load, connection, response);
        if (verdict == NO_ANSWER) continue;
        load->errors += verdict == FAILED;
        load->refused += verdict == REFUSED;
        load->total++;
        if (verdict == ACCEPTED) {
            double waited = now - connection->won_at;
            if (now >= load->measure_from && waited > load->longest_wait) load->longest_wait = waited;
            connection->won_at = now;
        }
        if (now >= load->measure_from && verdict != REFUSED) {
            load->answered++;
            load->last_answer = now;
            load->answer_bytes += get32(response);
            samples_add(&load->latency, now - connection->sent_at[connection->oldest]);
        }
        connection->oldest = (connection->oldest + 1) % load->in_flight_max;
        connection->in_flight--;
        load->in_flight--;
    }
    connection_consume(connection, start);
}

static void load_open(struct load *load, struct connection *connection, int port, uint32_t index, struct frame hello) {
    connection_open(connection, port);
    if (hello.length) {
        send_whole(connection->fd, hello.bytes, hello.length);
        while (!response_at(connection, 0)) {
            poll(&(struct pollfd){.fd = connection->fd, .events = POLLIN}, 1, 1000);
            connection_receive(connection);
        }
        connection_consume(connection, (size_t)get32(connection->received) + 4);
    }
    connection->sent_at = allocate(sizeof(double) * (size_t)load->in_flight_max);
    connection->burst = allocate(load->frame.length * (size_t)load->in_flight_max);
    for (int copy = 0; copy < load->in_flight_max; copy++)
        memcpy(connection->burst + (size_t)copy * load->frame.length, load->frame.bytes, load->frame.length);
    watch(load->epoll, connection->fd, index, EPOLLIN, EPOLL_CTL_ADD);
}

static int load_main(char **arguments, int arguments_count, enum mode mode) {
    int port = atoi(arguments[0]), count = atoi(arguments[1]);
    struct frame hello = {0};
    struct load load = {.mode = mode,
                        .epoll = epoll_create1(EPOLL_CLOEXEC),
                        .in_flight_max = atoi(arguments[2]),
                        .frame = frame_read(arguments[5]),
                        .fields = allocate(sizeof(struct field) * (size_t)arguments_count),
                        .latency = samples_new(8000000)};
    if (arguments_count > 6 && strcmp(arguments[6], "-")) {
        hello = frame_read(arguments[6]);
        load.is_native = true;
    }
    for (int at = 7; at < arguments_count; at++) load.fields[load.fields_count++] = field_read(arguments[at]);
    struct connection *connections = allocate(sizeof(struct connection) * (size_t)count);
    for (int index = 0; index < count; index++) load_open(&load, &connections[index], port, (uint32_t)index, hello);
    double cpu_before = cpu_seconds(), begun = clock_seconds();
    load.measure_from = load.last_answer = begun + atof(arguments[3]) / 1e3;
    load.deadline = load.measure_from + atof(arguments[4]) / 1e3;
    for (int index = 0; index < count; index++) {
        connections[index].won_at = begun;
        load_send(&load, &connections[index], (uint32_t)index);
    }
    while (load.in_flight && clock_seconds() < load.deadline + DRAIN_SECONDS) {
        struct epoll_event events[EVENTS_MAX];
        int ready = epoll_wait(load.epoll, events, EVENTS_MAX, 100);
        for (int event = 0; event < ready; event++) {
            struct connection *connection = &connections[events[event].data.u32];
            if (events[event].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) load_answers(&load, connection);
            load_send(&load, connection, events[event].data.u32);
        }
    }
    for (int index = 0; index < count; index++) {
        double waited = load.deadline - connections[index].won_at; /* a writer may never have won */
        if (waited > load.longest_wait) load.longest_wait = waited;
    }
    double seconds = load.last_answer - load.measure_from, cpu = cpu_seconds() - cpu_before;
    samples_sort(&load.latency);
    printf("{\"operations\": %ld, \"total\": %ld, \"refused\": %ld, \"seconds\": %.4f, \"bytes\": %.0f, \"p50_ms\": %.4f, "
           "\"p99_ms\": %.4f, \"longest_ms\": %.4f, \"longest_wait_ms\": %.4f, \"answer_bytes\": %.0f, \"errors\": %ld, "
           "\"unanswered\": %ld, \"generator_cpu_s\": %.3f, \"generator_wall_s\": %.3f}\n",
           load.answered, load.total, load.refused, seconds, (double)load.answered * (double)load.frame.length,
           samples_quantile(&load.latency, 0.5), samples_quantile(&load.latency, 0.99), samples_quantile(&load.latency, 1),
           load.longest_wait * 1e3, load.answer_bytes, load.errors, load.in_flight, cpu, clock_seconds() - begun);
    if (load.in_flight) fprintf(stderr, "%ld requests were never answered\n", load.in_flight);
    return load.errors || load.in_flight || !load.answered;
}

/* ---- fan ------------------------------------------------------------------------------------------------------ */

struct fan {
    int epoll, timer, readers;
    struct connection *connections; /* the readers, then the producer */
    struct frame record, fetch;
    size_t fetch_offset_at;
    uint64_t first_offset; /* of the first counted record: the record at first_offset + n was sent at sent_at[n] */
    double begun, interval, *sent_at, last_delivery;
    long warmup, count, sent, acknowledged, delivered, errors; /* count: with the warm-up */
    struct samples latency;
};

static void fan_fetch(struct fan *fan, struct connection *reader) {
    put64(fan->fetch.bytes + fan->fetch_offset_at, reader->position);
    send_whole(reader->fd, fan->fetch.bytes, fan->fetch.length);
}

/* Counts what a Fetch v4 response brings; a record that is missing or comes twice leaves the position behind. */
static void fan_deliver(struct fan *fan, struct connection *reader, const char *response) {
    double now = clock_seconds();
    const char *at = skip_text(response + 16) + 8; /* length, correlation id, throttle, topics; partitions, index */
    int error = (int16_t)get16(at);
    if (error && !fan->errors++) fprintf(stderr, "fetch was answered with error code %d\n", error);
    at += 2 + 8 + 8; /* error, high watermark, last stable offset */
    int32_t aborted = (int32_t)get32(at);
    at += 4 + (aborted > 0 ? 16 * aborted : 0);
    int32_t length = (int32_t)get32(at);
    at += 4;
    const char *end = at + (length > 0 ? length : 0);
    while (end - at >= 61) {
        uint64_t base = get64(at), next = base + get32(at + 23) + 1; /* last offset delta */
        size_t batch_length = (size_t)get32(at + 8) + 12;
        if ((size_t)(end - at) < batch_length) break;
        for (uint64_t offset = base; offset < next; offset++) {
            if (offset != reader->position) continue;
            reader->position++;
            uint64_t sequence = offset - fan->first_offset;
            if (sequence >= (uint64_t)fan->sent) die("offset %lu was delivered but never sent", offset);
            if (sequence >= (uint64_t)fan->warmup) samples_add(&fan->latency, now - fan->sent_at[sequence]);
            fan->delivered++;
            fan->last_delivery = now;
        }
        at += batch_length;
    }
}

static void fan_acknowledge(struct fan *fan, const char *response) {
    uint64_t offset;
    int error = produce_error(response, &offset);
    if (error && !fan->errors++) fprintf(stderr, "produce was answered with error code %d\n", error);
    if (!error && offset != fan->first_offset + (uint64_t)fan->acknowledged) die("another producer writes to the topic");
    fan->acknowledged++;
}

/* Sends every record that is due (open loop: no answer is waited for) and sets the timer for the next. */
static void fan_send_due(struct fan *fan) {
    struct connection *producer = &fan->connections[fan->readers];
    while (fan->sent < fan->count && clock_seconds() >= fan->begun + (double)fan->sent * fan->interval) {
        fan->sent_at[fan->sent++] = clock_seconds();
        send_whole(producer->fd, fan->record.bytes, fan->record.length);
    }
    double due = fan->begun + (double)fan->sent * fan->interval;
    struct itimerspec timer = {.it_value = {.tv_sec = (time_t)due, .tv_nsec = (long)((due - (double)(time_t)due) * 1e9)}};
    if (fan->sent < fan->count) timerfd_settime(fan->timer, TFD_TIMER_ABSTIME, &timer, NULL);
}

static void fan_receive(struct fan *fan, int index) {
    struct connection *connection = &fan->connections[index];
    connection_receive(connection);
    size_t start = 0;
    for (const char *response; (response = response_at(connection, start));) {
        start += (size_t)get32(response) + 4;
        if (index == fan->readers) fan_acknowledge(fan, response);
        else fan_deliver(fan, connection, response);
    }
    connection_consume(connection, start);
    if (start && index != fan->readers) fan_fetch(fan, connection);
}

static void fan_open(struct fan *fan, int port) {
    struct connection *producer = &fan->connections[fan->readers];
    connection_open(producer, port);
    send_whole(producer->fd, fan->record.bytes, fan->record.length);
    while (!response_at(producer, 0)) {
        poll(&(struct pollfd){.fd = producer->fd, .events = POLLIN}, 1, 1000);
        connection_receive(producer);
    }
    uint64_t offset;
    int error = produce_error(producer->received, &offset);
    if (error) die("the first produce was answered with error code %d", error);
    producer->received_length = 0;
    fan->first_offset = offset + 1;
    for (int index = 0; index <= fan->readers; index++) {
        struct connection *connection = &fan->connections[index];
        if (index < fan->readers) {
            connection_open(connection, port);
            connection->position = fan->first_offset;
            fan_fetch(fan, connection);
        }
        watch(fan->epoll, connection->fd, (uint32_t)index, EPOLLIN, EPOLL_CTL_ADD);
    }
    watch(fan->epoll, fan->timer, (uint32_t)fan->readers + 1, EPOLLIN, EPOLL_CTL_ADD);
}

static int fan_main(char **arguments) {
    long warmup = atol(arguments[4]), count = warmup + atol(arguments[5]);
    int readers = atoi(arguments[2]);
    struct fan fan = {.epoll = epoll_create1(EPOLL_CLOEXEC),
                      .timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC),
                      .readers = readers,
                      .connections = allocate(sizeof(struct connection) * (size_t)(readers + 1)),
                      .record = frame_read(arguments[6]),
                      .sent_at = allocate(sizeof(double) * (size_t)count),
                      .interval = 1 / atof(arguments[3]),
                      .warmup = warmup,
                      .count = count,
                      .latency = samples_new((size_t)count * (size_t)readers)};
    fan.fetch = fetch_frame(arguments[1], &fan.fetch_offset_at);
    fan_open(&fan, atoi(arguments[0]));
    long wanted = count * readers;
    double cpu_before = cpu_seconds();
    /* Time for the readers' first fetches to be parked before the first record is sent. */
    fan.begun = fan.last_delivery = clock_seconds() + 0.5;
    double begun = fan.begun, deadline = begun + (double)count * fan.interval + DRAIN_SECONDS;
    fan_send_due(&fan);
    while ((fan.delivered < wanted || fan.acknowledged < count) && clock_seconds() < deadline) {
        struct epoll_event events[EVENTS_MAX];
        int ready = epoll_wait(fan.epoll, events, EVENTS_MAX, 100);
        for (int event = 0; event < ready; event++) {
            int index = (int)events[event].data.u32;
            if (index <= readers) {
                fan_receive(&fan, index);
            } else {
                uint64_t expirations;
                if (read(fan.timer, &expirations, sizeof expirations) < 0 && errno != EAGAIN) die("timer");
                fan_send_due(&fan);
            }
        }
    }
    samples_sort(&fan.latency);
    printf("{\"operations\": %ld, \"seconds\": %.4f, \"wanted\": %ld, \"sent\": %ld, \"acknowledged\": %ld, "
           "\"p50_ms\": %.4f, \"p99_ms\": %.4f, \"max_ms\": %.4f, \"errors\": %ld, \"generator_cpu_s\": %.3f}\n",
           fan.delivered, fan.last_delivery - begun, wanted, fan.sent, fan.acknowledged,
           samples_quantile(&fan.latency, 0.5), samples_quantile(&fan.latency, 0.99), samples_quantile(&fan.latency, 1),
           fan.errors, cpu_seconds() - cpu_before);
    return fan.errors != 0;
}

/* ---- start ---------------------------------------------------------------------------------------------------- */

/* Sends a request on a blocking socket; the response lies in `*response`. False when the connection is of no use. */
static bool exchange(int fd, struct frame request, char **response) {
    char head[4];
    if (send(fd, request.bytes, request.length, MSG_NOSIGNAL) != (ssize_t)request.length) return false;
    if (recv(fd, head, 4, MSG_WAITALL) != 4) return false;
    size_t length = get32(head);
    *response = realloc(*response, length + 4);
    if (!*response) die("out of memory (response of %zu bytes)", length);
    memcpy(*response, head, 4);
    return recv(fd, *response + 4, length, MSG_WAITALL) == (ssize_t)length;
}

static int start_main(char **arguments) {
    int port = atoi(arguments[0]), leader = atoi(arguments[5]), fd = -1, error = 0;
    long partitions = atol(arguments[2]), leaders = 0;
    double deadline = clock_seconds() + atof(arguments[3]) / 1e3, connected_at = 0, ready_at = 0, acknowledged_at = 0;
    bool produces = strcmp(arguments[4], "-") != 0;
    struct frame metadata = metadata_frame(arguments[1]), produce = {0};
    if (produces) produce = frame_read(arguments[4]);
    char *response = NULL;
    while (clock_seconds() < deadline && (!ready_at || (produces && !acknowledged_at))) {
        if (fd < 0 && (fd = try_dial(port)) < 0) {
            usleep(1000);
            continue;
        }
        if (!connected_at) connected_at = clock_seconds();
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 10}, sizeof(struct timeval));
        if (!exchange(fd, ready_at ? produce : metadata, &response)) {
            close(fd);
            fd = -1;
        } else if (!ready_at) {
            leaders = metadata_leaders(response, leader);
            if (leaders >= partitions) ready_at = clock_seconds();
            else usleep(5000);
        } else if ((error = produce_error(response, NULL)) == 0) {
            acknowledged_at = clock_seconds();
        } else {
            usleep(5000);
        }
    }
    bool done = ready_at && (!produces || acknowledged_at);
    if (!done) fprintf(stderr, "time is up: %ld of %ld leaders, last produce error %d\n", leaders, partitions, error);
    printf("{\"connected_at_s\": %.6f, \"ready_at_s\": %.6f, \"acknowledged_at_s\": %.6f, \"errors\": %d}\n",
           connected_at, ready_at, acknowledged_at, done ? 0 : 1);
    return !done;
}

int main(int count, char **arguments) {
    if (count >= 8 && !strcmp(arguments[1], "load")) return load_main(arguments + 2, count - 2, LOAD);
    if (count >= 9 && !strcmp(arguments[1], "race")) return load_main(arguments + 2, count - 2, RACE);
    if (count >= 9 && !strcmp(arguments[1], "swap")) return load_main(arguments + 2, count - 2, SWAP);
    if (count == 9 && !strcmp(arguments[1], "fan")) return fan_main(arguments + 2);
    if (count == 8 && !strcmp(arguments[1], "start")) return start_main(arguments + 2);
    die("usage: raw load|race|swap|fan|start ... (the head of raw.c says which arguments)");
}
