/* Load through librdkafka, the client most programs use, without a line of Python per record.
 *
 *   rdkafka produce BROKER TOPIC SIZE BATCH_BYTES WARMUP_MS MEASURE_MS RECORDS_MAX IDEMPOTENT
 *       batches of BATCH_BYTES, acks=all, until MEASURE_MS after WARMUP_MS or RECORDS_MAX records; then flushes;
 *       as the producer's queue is kept full, the latencies are mostly the wait in it
 *   rdkafka consume BROKER TOPIC RECORDS TIMEOUT_MS
 *       reads partition 0 from its first offset until RECORDS records have come, each in its place
 *   rdkafka latency BROKER TOPIC SIZE RATE WARMUP COUNT
 *       one producer without batching at RATE a second, one consumer at the end of the log: produce() to poll(), of
 *       COUNT records after the first WARMUP
 *   rdkafka group   BROKER TOPIC GROUP TIMEOUT_MS
 *       from subscribe() to the first record, in a classic consumer group
 *   rdkafka seed    BROKER TOPIC PARTITIONS TIMEOUT_MS
 *       writes one record into each partition
 *
 * One JSON object goes to standard output. The exit status is 0 only if every record arrived and none failed. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "measure.h"
#include "rdkafka.h"

enum { CONSUME_BATCH = 4096, LATENCY_STRIDE = 16, FLUSH_MS = 60000 };

/* ---- clients -------------------------------------------------------------------------------------------------- */

/* A client of `settings`: name, value, name, value ..., NULL. */
static rd_kafka_t *client(int type, const char *broker, const char *const *settings,
                          void (*delivered)(rd_kafka_t *, const rd_kafka_message_t *, void *)) {
    char reason[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, "bootstrap.servers", broker, reason, sizeof reason)) die("%s", reason);
    for (; settings[0]; settings += 2)
        if (rd_kafka_conf_set(conf, settings[0], settings[1], reason, sizeof reason)) die("%s", reason);
    if (delivered) rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    rd_kafka_t *made = rd_kafka_new(type, conf, reason, sizeof reason);
    if (!made) die("%s", reason);
    return made;
}

static rd_kafka_t *consumer(const char *broker) {
    const char *const settings[] = {"group.id", "bench", "enable.auto.commit", "false", "queued.min.messages", "100000",
                                    NULL};
    rd_kafka_t *made = client(RD_KAFKA_CONSUMER, broker, settings, NULL);
    rd_kafka_poll_set_consumer(made);
    return made;
}

static void assign(rd_kafka_t *consumer, const char *topic, int64_t offset) {
    rd_kafka_topic_partition_list_t *partitions = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(partitions, topic, 0);
    rd_kafka_topic_partition_list_set_offset(partitions, topic, 0, offset);
    rd_kafka_resp_err_t error = rd_kafka_assign(consumer, partitions);
    if (error) die("assign: %s", rd_kafka_err2str(error));
}

/* Puts a record into partition `partition`, waiting for room in the producer's queue. */
static void enqueue(rd_kafka_t *producer, rd_kafka_topic_t *topic, int32_t partition, void *value, size_t size) {
    while (rd_kafka_produce(topic, partition, RD_KAFKA_MSG_F_COPY, value, size, NULL, 0, NULL)) {
        rd_kafka_resp_err_t error = rd_kafka_last_error();
        if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL) die("produce: %s", rd_kafka_err2str(error));
        rd_kafka_poll(producer, 10);
    }
}

/* ---- produce and seed ----------------------------------------------------------------------------------------- */

/* librdkafka's delivery callback has one pointer for its user, which goes through the configuration; a file variable
 * is the shorter way in a program that has one producer. */
static struct {
    long counted, delivered, failed;
    double measure_from, last;
    struct samples latency;
} deliveries;

static void on_delivery(rd_kafka_t *producer, const rd_kafka_message_t *message, void *opaque) {
    (void)producer, (void)opaque;
    if (message->err) {
        if (!deliveries.failed++) fprintf(stderr, "delivery failed: %s\n", rd_kafka_err2str(message->err));
        return;
    }
    deliveries.delivered++;
    deliveries.last = clock_seconds();
    if (deliveries.last < deliveries.measure_from) return;
    if (deliveries.counted++ % LATENCY_STRIDE == 0)
        samples_add(&deliveries.latency, (double)rd_kafka_message_latency(message) * 1e-6);
}

/* Bytes that do not compress; the generator needs no better randomness than this. */
static char *random_value(size_t size) {
    char *value = allocate(size);
    for (size_t index = 0; index < size; index++) value[index] = (char)rand();
    return value;
}

static int produce_main(char **arguments) {
    const char *const settings[] = {
        "acks", "all", "enable.idempotence", arguments[7], "linger.ms", "5", "batch.size", arguments[3],
        "batch.num.messages", "10000", "message.max.bytes", "1048576",
        /* Enough for every broker to stay busy, little enough for a slow one to drain in a few seconds. */
        "queue.buffering.max.messages", "500000", "queue.buffering.max.kbytes", "65536", NULL};
    size_t size = (size_t)atol(arguments[2]);
    long records_max = atol(arguments[6]), sent = 0;
    rd_kafka_t *producer = client(RD_KAFKA_PRODUCER, arguments[0], settings, on_delivery);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, arguments[1], NULL);
    char *value = random_value(size);
    deliveries.latency = samples_new(4000000);
    double cpu_before = cpu_seconds(), begun = clock_seconds();
    deliveries.measure_from = deliveries.last = begun + atof(arguments[4]) / 1e3;
    double deadline = deliveries.measure_from + atof(arguments[5]) / 1e3;
    while (sent < records_max && ((sent & 255) || clock_seconds() < deadline)) {
        enqueue(producer, topic, 0, value, size);
        if (!(++sent & 1023)) rd_kafka_poll(producer, 0);
    }
    rd_kafka_flush(producer, FLUSH_MS);
    long failed = sent - deliveries.delivered;
    if (failed) fprintf(stderr, "%ld of %ld records were not acknowledged\n", failed, sent);
    double seconds = deliveries.last - deliveries.measure_from, cpu = cpu_seconds() - cpu_before;
    samples_sort(&deliveries.latency);
    printf("{\"operations\": %ld, \"total\": %ld, \"seconds\": %.4f, \"bytes\": %.0f, \"p50_ms\": %.4f, \"p99_ms\": %.4f, "
           "\"errors\": %ld, \"generator_cpu_s\": %.3f, \"generator_wall_s\": %.3f}\n",
           deliveries.counted, deliveries.delivered, seconds, (double)deliveries.counted * (double)size,
           samples_quantile(&deliveries.latency, 0.5), samples_quantile(&deliveries.latency, 0.99), failed, cpu,
           clock_seconds() - begun);
    return failed != 0;
}

static int seed_main(char **arguments) {
    const char *const settings[] = {"acks", "all", "enable.idempotence", "false", "linger.ms", "5",
                                    "message.timeout.ms", arguments[3], NULL};
    rd_kafka_t *producer = client(RD_KAFKA_PRODUCER, arguments[0], settings, on_delivery);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, arguments[1], NULL);
    int partitions = atoi(arguments[2]);
    char value[100] = "seed";
    double begun = clock_seconds();
    for (int partition = 0; partition < partitions; partition++)
        enqueue(producer, topic, partition, value, sizeof value);
    rd_kafka_flush(producer, atoi(arguments[3]));
    long failed = partitions - deliveries.delivered;
    printf("{\"operations\": %ld, \"seconds\": %.4f, \"errors\": %ld}\n", deliveries.delivered, clock_seconds() - begun, failed);
    return failed != 0;
}

/* ---- consume -------------------------------------------------------------------------------------------------- */

static int consume_main(char **arguments) {
    long wanted = atol(arguments[2]), records = 0, errors = 0;
    double bytes = 0, cpu_before = cpu_seconds(), begun = clock_seconds(), first = 0;
    double deadline = begun + atof(arguments[3]) / 1e3;
    rd_kafka_t *reader = consumer(arguments[0]);
    assign(reader, arguments[1], 0); /* by number: asking for the beginning costs librdkafka another half second */
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(reader);
    static rd_kafka_message_t *messages[CONSUME_BATCH];
    while (records < wanted && clock_seconds() < deadline) {
        ssize_t count = rd_kafka_consume_batch_queue(queue, 200, messages, CONSUME_BATCH);
        if (count > 0 && !first) first = clock_seconds();
        for (ssize_t index = 0; index < count; index++) {
            rd_kafka_message_t *message = messages[index];
            if (message->err) {
                if (!errors++) fprintf(stderr, "consume: %s\n", rd_kafka_message_errstr(message));
            } else {
                if (message->offset != records && !errors++)
                    fprintf(stderr, "consume: offset %ld came where %ld was due\n", (long)message->offset, records);
                records++;
                bytes += (double)message->len;
            }
            rd_kafka_message_destroy(message);
        }
    }
    double ended = clock_seconds();
    if (records < wanted) fprintf(stderr, "consume: %ld of %ld records came\n", records, wanted);
    printf("{\"operations\": %ld, \"seconds\": %.4f, \"bytes\": %.0f, \"first_ms\": %.2f, \"errors\": %ld, "
           "\"generator_cpu_s\": %.3f, \"generator_wall_s\": %.3f}\n",
           records, ended - begun, bytes, first ? (first - begun) * 1e3 : -1, errors, cpu_seconds() - cpu_before,
           ended - begun);
    fflush(stdout);
    _exit(errors || records < wanted); /* without librdkafka's slow farewell */
}

/* ---- latency -------------------------------------------------------------------------------------------------- */

struct pace {
    rd_kafka_t *producer;
    rd_kafka_topic_t *topic;
    size_t size;
    long rate, count;
};

static void *poll_deliveries(void *producer) {
    for (;;) rd_kafka_poll(producer, 20);
    return NULL;
}

/* Sends `count` records at `rate` a second; each carries the time of its produce(). */
static void *send_paced(void *argument) {
    struct pace *pace = argument;
    char *value = random_value(pace->size);
    double begun = clock_seconds();
    for (long index = 0; index < pace->count; index++) {
        double due = begun + (double)index / (double)pace->rate, now = clock_seconds();
        struct timespec until = {.tv_sec = (time_t)due, .tv_nsec = (long)((due - (double)(time_t)due) * 1e9)};
        if (now < due) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        now = clock_seconds();
        memcpy(value, &now, sizeof now);
        enqueue(pace->producer, pace->topic, 0, value, pace->size);
    }
    return NULL;
}

/* Sends marks of 1 byte until one comes back: then the consumer stands at the end of the log. */
static void latency_settle(struct pace *pace, rd_kafka_t *reader) {
    double deadline = clock_seconds() + 20;
    for (bool seen = false;;) {
        if (!seen) enqueue(pace->producer, pace->topic, 0, "m", 1);
        rd_kafka_message_t *message = rd_kafka_consumer_poll(reader, seen ? 500 : 100);
        if (!message && seen) return;
        seen = seen || (message && !message->err);
        if (message) rd_kafka_message_destroy(message);
        if (clock_seconds() > deadline) die("latency: no record reached the consumer");
    }
}

static int latency_main(char **arguments) {
    const char *const settings[] = {"acks", "all", "enable.idempotence", "false", "linger.ms", "0",
                                    "batch.num.messages", "1", NULL};
    struct pace pace = {.size = (size_t)atol(arguments[2]), .rate = atol(arguments[3]), .count = atol(arguments[4]) + atol(arguments[5])};
    long warmup = atol(arguments[4]);
    pace.producer = client(RD_KAFKA_PRODUCER, arguments[0], settings, on_delivery);
    pace.topic = rd_kafka_topic_new(pace.producer, arguments[1], NULL);
    pthread_t poller, sender;
    pthread_create(&poller, NULL, poll_deliveries, pace.producer);
    rd_kafka_t *reader = consumer(arguments[0]);
    assign(reader, arguments[1], RD_KAFKA_OFFSET_END);
    latency_settle(&pace, reader);
    struct samples latency = samples_new((size_t)pace.count);
    long records = 0, errors = 0;
    double cpu_before = cpu_seconds(), begun = clock_seconds();
    double deadline = begun + (double)pace.count / (double)pace.rate + 10;
    pthread_create(&sender, NULL, send_paced, &pace);
    while (records < pace.count && clock_seconds() < deadline) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(reader, 200);
        if (!message) continue;
        double now = clock_seconds(), sent;
        if (message->err) {
            if (!errors++) fprintf(stderr, "latency: %s\n", rd_kafka_message_errstr(message));
        } else if (message->len == pace.size) {
            memcpy(&sent, message->payload, sizeof sent);
            if (records++ >= warmup) samples_add(&latency, now - sent);
        }
        rd_kafka_message_destroy(message);
    }
    double seconds = clock_seconds() - begun;
    errors += deliveries.failed;
    if (records < pace.count) fprintf(stderr, "latency: %ld of %ld records came\n", records, pace.count);
    samples_sort(&latency);
    printf("{\"operations\": %ld, \"seconds\": %.4f, \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"max_ms\": %.4f, \"errors\": %ld, "
           "\"generator_cpu_s\": %.3f}\n",
           records, seconds, samples_quantile(&latency, 0.5), samples_quantile(&latency, 0.99),
           samples_quantile(&latency, 1), errors, cpu_seconds() - cpu_before);
    fflush(stdout);
    _exit(errors || records < pace.count);
}

/* ---- group ---------------------------------------------------------------------------------------------------- */

static int group_main(char **arguments) {
    const char *const settings[] = {"group.id", arguments[2], "auto.offset.reset", "earliest", NULL};
    rd_kafka_t *member = client(RD_KAFKA_CONSUMER, arguments[0], settings, NULL);
    rd_kafka_poll_set_consumer(member);
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, arguments[1], RD_KAFKA_PARTITION_UA);
    double begun = clock_seconds(), deadline = begun + atof(arguments[3]) / 1e3;
    rd_kafka_resp_err_t error = rd_kafka_subscribe(member, topics);
    if (error) die("subscribe: %s", rd_kafka_err2str(error));
    while (clock_seconds() < deadline) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(member, 100);
        if (!message) continue;
        if (message->err) die("group: %s", rd_kafka_message_errstr(message));
        printf("{\"operations\": 1, \"first_message_ms\": %.3f, \"errors\": 0}\n", (clock_seconds() - begun) * 1e3);
        fflush(stdout);
        rd_kafka_message_destroy(message);
        rd_kafka_consumer_close(member);
        _exit(0);
    }
    die("group: no record came within %s ms", arguments[3]);
}

int main(int count, char **arguments) {
    if (count == 2 && !strcmp(arguments[1], "version")) return puts(rd_kafka_version_str()) < 0;
    if (count == 10 && !strcmp(arguments[1], "produce")) return produce_main(arguments + 2);
    if (count == 6 && !strcmp(arguments[1], "consume")) return consume_main(arguments + 2);
    if (count == 8 && !strcmp(arguments[1], "latency")) return latency_main(arguments + 2);
    if (count == 6 && !strcmp(arguments[1], "group")) return group_main(arguments + 2);
    if (count == 6 && !strcmp(arguments[1], "seed")) return seed_main(arguments + 2);
    die("usage: rdkafka produce|consume|latency|group|seed ... (the head of rdkafka.c says which arguments)");
}
