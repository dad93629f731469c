/* The part of librdkafka's stable C interface that rdkafka.c calls, declared here so that the shared library inside
 * confluent-kafka's wheel serves without a development package. */
#ifndef BENCH_RDKAFKA_H
#define BENCH_RDKAFKA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_topic_partition_list_s rd_kafka_topic_partition_list_t;
typedef int rd_kafka_resp_err_t;

typedef struct {
    rd_kafka_resp_err_t err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;

enum { RD_KAFKA_PRODUCER = 0, RD_KAFKA_CONSUMER = 1 };
enum { RD_KAFKA_CONF_OK = 0, RD_KAFKA_MSG_F_COPY = 2, RD_KAFKA_RESP_ERR__QUEUE_FULL = -184 };
enum { RD_KAFKA_OFFSET_END = -1, RD_KAFKA_PARTITION_UA = -1 };

const char *rd_kafka_version_str(void);
const char *rd_kafka_err2str(rd_kafka_resp_err_t);
rd_kafka_resp_err_t rd_kafka_last_error(void);

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *name, const char *value, char *reason, size_t reason_size);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
rd_kafka_t *rd_kafka_new(int type, rd_kafka_conf_t *, char *reason, size_t reason_size);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *name, rd_kafka_topic_conf_t *);

int rd_kafka_produce(rd_kafka_topic_t *, int32_t partition, int flags, void *payload, size_t length, const void *key,
                     size_t key_length, void *opaque);
int rd_kafka_poll(rd_kafka_t *, int timeout_ms);
rd_kafka_resp_err_t rd_kafka_flush(rd_kafka_t *, int timeout_ms);
int64_t rd_kafka_message_latency(const rd_kafka_message_t *); /* microseconds since rd_kafka_produce */

rd_kafka_resp_err_t rd_kafka_poll_set_consumer(rd_kafka_t *);
rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int size);
void *rd_kafka_topic_partition_list_add(rd_kafka_topic_partition_list_t *, const char *topic, int32_t partition);
rd_kafka_resp_err_t rd_kafka_topic_partition_list_set_offset(rd_kafka_topic_partition_list_t *, const char *topic,
                                                             int32_t partition, int64_t offset);
rd_kafka_resp_err_t rd_kafka_assign(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
rd_kafka_resp_err_t rd_kafka_subscribe(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int timeout_ms, rd_kafka_message_t **, size_t size);
rd_kafka_message_t *rd_kafka_consumer_poll(rd_kafka_t *, int timeout_ms);
const char *rd_kafka_message_errstr(const rd_kafka_message_t *);
void rd_kafka_message_destroy(rd_kafka_message_t *);
rd_kafka_resp_err_t rd_kafka_consumer_close(rd_kafka_t *);

#endif
